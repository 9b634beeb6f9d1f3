#include "weights/stored_matrix.h"

#include <cstring>

#include "tensor/packing.h"

namespace millrace {
namespace {

constexpr int kCodesInWord = 8;
constexpr int kInt4Block = 32;
constexpr uint32_t kEightZerosOfEight = 0x88888888u;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool is_fp8(const CheckpointTensor& tensor) {
  return tensor.type == std::variant<WeightFormat, DType>(DType::kF8E4M3);
}

// The next 32 or 64 bits of integers as a tensor stores them.
int64_t integer_at(const CheckpointTensor& tensor, int64_t index) {
  if (std::get<DType>(tensor.type) == DType::kI64) {
    int64_t value;
    std::memcpy(&value, tensor.bytes.data() + 8 * index, 8);
    return value;
  }
  int32_t value;
  std::memcpy(&value, tensor.bytes.data() + 4 * index, 4);
  return value;
}

// Finds the tensors of one module.
class Finder {
 public:
  Finder(const Checkpoint& checkpoint, const std::optional<QuantizationConfig>& quantization,
         const std::string& module, int64_t n, int64_t k)
      : checkpoint_(checkpoint), quantization_(quantization), module_(module), n_(n), k_(k) {}

  Result<StoredMatrix> find() {
    const std::string name = module_ + ".weight";
    const CheckpointTensor* tensor = checkpoint_.find(name);
    if (tensor != nullptr && is_fp8(*tensor)) return find_fp8(*tensor);
    if (tensor == nullptr && has(".qweight")) return find_gptq_or_awq();
    if (tensor == nullptr && has(".weight_packed")) return find_compressed();
    MR_ASSIGN(const CheckpointTensor* weight, find_weight(checkpoint_, name, {n_, k_}));
    return StoredMatrix{.tensor = weight};
  }

 private:
  bool has(const char* suffix) const { return checkpoint_.find(module_ + suffix) != nullptr; }

  bool method_is(QuantizationMethod method) const {
    return quantization_ && quantization_->method == method;
  }

  // A tensor of the module of one of the types.
  Result<const CheckpointTensor*> part(
      const char* suffix, const std::vector<int64_t>& shape,
      const std::vector<std::variant<WeightFormat, DType>>& types) const {
    const std::string name = module_ + suffix;
    const CheckpointTensor* tensor = checkpoint_.find(name);
    if (tensor == nullptr) {
      return fail("tensor {} is missing; quantised matrix {} needs one of shape {}", name, module_,
                  shape_text(shape));
    }
    if (tensor->shape != shape) {
      return fail("tensor {} has shape {}; a matrix of {} outputs and {} inputs needs {}", name,
                  shape_text(tensor->shape), n_, k_, shape_text(shape));
    }
    std::string names;
    for (const auto& type : types) {
      if (type == tensor->type) return tensor;
      names += names.empty() ? "" : " or ";
      names += std::visit([](auto value) { return name_of(value); }, type);
    }
    return fail("tensor {} is of type {}; expected {}", name, tensor->type_name(), names);
  }

  std::unexpected<Error> no_method(const std::string& suffix, const char* methods) const {
    return fail(
        "tensor {}{} is quantised; expected a quantization_config with quant_method {} in "
        "config.json that says how",
        module_, suffix, methods);
  }

  Result<StoredMatrix> find_fp8(const CheckpointTensor& tensor) const {
    if (!method_is(QuantizationMethod::kBlockFp8)) return no_method(".weight", "fp8");
    if (tensor.shape != std::vector<int64_t>{n_, k_}) {
      return fail("tensor {} has shape {}; the configuration asks for {}", tensor.name,
                  shape_text(tensor.shape), shape_text({n_, k_}));
    }
    const int rows = quantization_->block_rows;
    const int columns = quantization_->block_cols;
    StoredMatrix matrix{.tensor = &tensor};
    MR_ASSIGN(matrix.scales, part(".weight_scale_inv", {ceil_div(n_, rows), ceil_div(k_, columns)},
                                  {WeightFormat::kF32, WeightFormat::kBF16}));
    matrix.codes = Fp8Tensor{.codes = tensor.bytes.data(),
                             .columns = k_,
                             .scales = matrix.scales->bytes.data(),
                             .scale_format = *matrix.scales->weight_format(),
                             .block_rows = rows,
                             .block_columns = columns};
    return matrix;
  }

  // Sizes that words of eight codes and packed blocks divide.
  Result<> check_int4_shape(const std::string& suffix, bool zeros) const {
    if (k_ % kInt4Block != 0) {
      return fail("tensor {}{}: {} inputs of 4 bits; expected a multiple of {}", module_, suffix,
                  k_, kInt4Block);
    }
    if (zeros && n_ % kCodesInWord != 0) {
      return fail("tensor {}{}: {} outputs of 4 bits; expected a multiple of {}", module_, suffix,
                  n_, kCodesInWord);
    }
    return {};
  }

  Int4Tensor int4(const StoredMatrix& matrix, Int4Packing packing) const {
    return {.packing = packing,
            .codes = matrix.tensor->bytes.data(),
            .zeros = matrix.zeros == nullptr ? nullptr : matrix.zeros->bytes.data(),
            .scales = matrix.scales->bytes.data(),
            .scale_format = *matrix.scales->weight_format(),
            .n = n_,
            .k = k_,
            .group = quantization_->group_size};
  }

  Result<StoredMatrix> find_gptq_or_awq() const {
    const bool gptq = method_is(QuantizationMethod::kGptq);
    if (!gptq && !method_is(QuantizationMethod::kAwq)) {
      return no_method(".qweight", "gptq or awq");
    }
    MR_TRY(check_int4_shape(".qweight", true));
    const int64_t groups = ceil_div(k_, quantization_->group_size);
    const std::vector<int64_t> shape = gptq ? std::vector<int64_t>{k_ / kCodesInWord, n_}
                                            : std::vector<int64_t>{k_, n_ / kCodesInWord};
    StoredMatrix matrix;
    MR_ASSIGN(matrix.tensor, part(".qweight", shape, {DType::kI32}));
    MR_ASSIGN(matrix.scales, part(".scales", {groups, n_},
                                  {WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kF32}));
    MR_ASSIGN(matrix.zeros, part(".qzeros", {groups, n_ / kCodesInWord}, {DType::kI32}));
    Int4Tensor codes = int4(matrix, gptq ? Int4Packing::kGptq : Int4Packing::kAwq);
    if (gptq) {
      codes.zero_offset = quantization_->zeros_less_one ? 1 : 0;
      // check_contents() reads them.
      if (quantization_->symmetric) codes.zeros = nullptr;
      if (has(".g_idx")) {
        MR_ASSIGN(matrix.group_index, part(".g_idx", {k_}, {DType::kI32, DType::kI64}));
      }
    }
    matrix.codes = codes;
    return matrix;
  }

  Result<StoredMatrix> find_compressed() const {
    if (!method_is(QuantizationMethod::kCompressedTensors)) {
      return no_method(".weight_packed", "compressed-tensors");
    }
    const bool symmetric = quantization_->symmetric;
    MR_TRY(check_int4_shape(".weight_packed", !symmetric));
    const int64_t groups = ceil_div(k_, quantization_->group_size);
    StoredMatrix matrix;
    MR_ASSIGN(matrix.tensor, part(".weight_packed", {n_, k_ / kCodesInWord}, {DType::kI32}));
    MR_ASSIGN(matrix.scales, part(".weight_scale", {n_, groups},
                                  {WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kF32}));
    MR_ASSIGN(matrix.shape, part(".weight_shape", {2}, {DType::kI64, DType::kI32}));
    if (!symmetric) {
      MR_ASSIGN(matrix.zeros,
                part(".weight_zero_point", {n_ / kCodesInWord, groups}, {DType::kI32}));
    }
    if (has(".weight_g_idx")) {
      MR_ASSIGN(matrix.group_index, part(".weight_g_idx", {k_}, {DType::kI32, DType::kI64}));
    }
    matrix.codes = int4(matrix, Int4Packing::kCompressedTensors);
    return matrix;
  }

  const Checkpoint& checkpoint_;
  const std::optional<QuantizationConfig>& quantization_;
  const std::string& module_;
  const int64_t n_;
  const int64_t k_;
};

// Where codes have no zero points: what is stored, plus the offset, must say 8.
Result<> check_symmetric(const StoredMatrix& matrix, const Int4Tensor& codes) {
  const uint32_t expected =
      kEightZerosOfEight - 0x11111111u * static_cast<uint32_t>(codes.zero_offset);
  for (int64_t i = 0; i < matrix.zeros->num_elements(); ++i) {
    uint32_t word;
    std::memcpy(&word, matrix.zeros->bytes.data() + 4 * i, 4);
    if (word == expected) continue;
    return fail(
        "tensor {}: found {:#010x} in word {}, expected {:#010x}: quantization_config says that "
        "the codes are symmetric",
        matrix.zeros->name, word, i, expected);
  }
  return {};
}

}  // namespace

std::vector<const CheckpointTensor*> StoredMatrix::tensors() const {
  std::vector<const CheckpointTensor*> all;
  for (const auto* one : {tensor, scales, zeros, group_index, shape}) {
    if (one != nullptr) all.push_back(one);
  }
  return all;
}

Result<const CheckpointTensor*> find_weight(const Checkpoint& checkpoint, const std::string& name,
                                            const std::vector<int64_t>& shape) {
  const CheckpointTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) {
    return fail("tensor {} is missing; the configuration asks for one of shape {}", name,
                shape_text(shape));
  }
  if (tensor->shape != shape) {
    return fail("tensor {} has shape {}; the configuration asks for {}", name,
                shape_text(tensor->shape), shape_text(shape));
  }
  if (!tensor->weight_format()) {
    return fail("tensor {} is of type {}; that is no weight format that Millrace reads", name,
                tensor->type_name());
  }
  return tensor;
}

Result<StoredMatrix> find_stored_matrix(const Checkpoint& checkpoint,
                                        const std::optional<QuantizationConfig>& quantization,
                                        const std::string& module, int64_t n, int64_t k) {
  return Finder(checkpoint, quantization, module, n, k).find();
}

Result<> check_contents(const StoredMatrix& matrix) {
  const auto* codes = std::get_if<Int4Tensor>(&matrix.codes);
  if (codes == nullptr) return {};
  if (matrix.zeros != nullptr && codes->zeros == nullptr) MR_TRY(check_symmetric(matrix, *codes));
  for (int64_t i = 0; matrix.group_index != nullptr && i < codes->k; ++i) {
    const int64_t group = integer_at(*matrix.group_index, i);
    if (group == i / codes->group) continue;
    return fail(
        "tensor {}: input {} is in group {}, expected {}: act-order (groups of scattered inputs) "
        "is not supported",
        matrix.group_index->name, i, group, i / codes->group);
  }
  if (matrix.shape != nullptr) {
    const int64_t n = integer_at(*matrix.shape, 0);
    const int64_t k = integer_at(*matrix.shape, 1);
    if (n != codes->n || k != codes->k) {
      return fail("tensor {} holds [{}, {}]; the configuration asks for [{}, {}]",
                  matrix.shape->name, n, k, codes->n, codes->k);
    }
  }
  return {};
}

void expand_rows(const StoredMatrix& matrix, int64_t begin, int64_t end, float* dst) {
  if (const auto* fp8 = std::get_if<Fp8Tensor>(&matrix.codes)) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < fp8->columns; ++i) *dst++ = fp8->weight_at(row, i);
    }
    return;
  }
  if (const auto* int4 = std::get_if<Int4Tensor>(&matrix.codes)) {
    PackedMatrix packed = int4_layout(*int4, end - begin);
    std::vector<std::byte> panels(static_cast<size_t>(packed.total_bytes()));
    packed.panels = panels.data();
    pack_int4_panels(*int4, begin, packed, 0, packed.num_panels(), panels.data());
    for (int64_t row = 0; row < packed.n; ++row) {
      unpack_panel_row(packed, row, dst + row * packed.k);
    }
    return;
  }
  const WeightFormat format = *matrix.tensor->weight_format();
  const int64_t columns = matrix.tensor->shape.back();
  const int64_t size = row_bytes(format, columns);
  for (int64_t row = begin; row < end; ++row, dst += columns) {
    dequantize_row(format, matrix.tensor->bytes.data() + row * size, dst, columns);
  }
}

}  // namespace millrace
