#include "weights/checkpoint_sizes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tensor/packing.h"
#include "weights/tensor_names.h"

namespace millrace {
namespace {

// What quantised checkpoints hold beside codes, and codes eight to a word.
constexpr std::array<std::string_view, 9> kCompanionSuffixes = {
    ".weight_scale_inv", ".weight_scale", ".weight_zero_point",
    ".weight_shape",     ".weight_g_idx", ".qzeros",
    ".scales",           ".g_idx",        ".input_scale"};
constexpr std::array<std::string_view, 2> kWordSuffixes = {".qweight", ".weight_packed"};
constexpr int64_t kCodesInWord = 8;

template <size_t kCount>
bool ends_with_any(std::string_view name, const std::array<std::string_view, kCount>& suffixes) {
  return std::ranges::any_of(suffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace

int64_t num_parameters(const CheckpointTensor& tensor) {
  if (is_constant(tensor.name) || ends_with_any(tensor.name, kCompanionSuffixes)) return 0;
  const bool words = ends_with_any(tensor.name, kWordSuffixes) &&
                     tensor.type == std::variant<WeightFormat, DType>(DType::kI32);
  return tensor.num_elements() * (words ? kCodesInWord : 1);
}

int64_t num_parameters(const Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) count += num_parameters(tensor);
  return count;
}

int64_t packed_bytes(const CheckpointTensor& tensor) {
  if (is_constant(tensor.name)) return 0;
  const auto format = tensor.weight_format();
  if (!format) return static_cast<int64_t>(tensor.bytes.size());
  if (tensor.shape.size() >= 2 && tensor.num_elements() > 0) {
    const int64_t rows = tensor.num_elements() / tensor.shape.back();
    const auto layout = packed_layout(*format, rows, tensor.shape.back());
    if (layout) return layout->total_bytes();
  }
  return tensor.num_elements() * int64_t{sizeof(float)};
}

}  // namespace millrace
