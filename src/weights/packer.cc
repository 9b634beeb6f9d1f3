#include "weights/packer.h"

#include <algorithm>
#include <atomic>

#include "tensor/weight_format.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;
// A thread packs about this much before it takes the next piece.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

NameStyle Packer::style() const {
  return checkpoint_.is_gguf() ? NameStyle::kGguf : NameStyle::kHuggingFace;
}

bool Packer::has(const std::string& tensor_name) const {
  return checkpoint_.find(tensor_name) != nullptr;
}

Result<const CheckpointTensor*> Packer::find(const std::string& name,
                                             const std::vector<int64_t>& shape) {
  const CheckpointTensor* tensor = checkpoint_.find(name);
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
  taken_.insert(tensor);
  return tensor;
}

int64_t Packer::reserve(int64_t bytes) {
  const int64_t offset = reserved_;
  reserved_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Result<> Packer::add(const MatrixSource& source, MatrixShape shape, PackedMatrix* target) {
  auto layout = packed_layout(source, shape.n, shape.k);
  if (!layout) return fail("tensor {}: {}", source.tensor->name, layout.error().message);
  *target = *layout;
  matrices_.push_back({source, target, reserve(layout->total_bytes())});
  return {};
}

Result<> Packer::matrix(const std::string& module, MatrixShape shape, PackedMatrix* target) {
  MR_ASSIGN(const CheckpointTensor* tensor, find(module + ".weight", {shape.n, shape.k}));
  return add({.tensor = tensor}, shape, target);
}

Result<> Packer::matrix_f32(const std::string& module, MatrixShape shape, PackedMatrix* target) {
  MR_ASSIGN(const CheckpointTensor* tensor, find(module + ".weight", {shape.n, shape.k}));
  return add({.tensor = tensor, .to_f32 = true}, shape, target);
}

Result<> Packer::matrices(const std::string& module, MatrixShape shape,
                          std::vector<PackedMatrix>& targets) {
  const auto count = static_cast<int64_t>(targets.size());
  MR_ASSIGN(const CheckpointTensor* tensor, find(module + ".weight", {count, shape.n, shape.k}));
  for (int64_t i = 0; i < count; ++i) {
    MR_TRY(add({.tensor = tensor, .row_begin = i * shape.n}, shape,
               &targets[static_cast<size_t>(i)]));
  }
  return {};
}

Result<> Packer::kv_up(const std::string& module, KvUpShape shape, std::vector<PackedMatrix>& k_up,
                       std::vector<PackedMatrix>& v_up) {
  const int64_t head_rows = shape.nope + shape.v;
  MR_ASSIGN(const CheckpointTensor* tensor,
            find(module + ".weight", {shape.heads * head_rows, shape.latent}));
  for (int64_t head = 0; head < shape.heads; ++head) {
    const auto index = static_cast<size_t>(head);
    const int64_t row = head * head_rows;
    MR_TRY(add({.tensor = tensor, .row_begin = row, .transposed = true},
               {shape.latent, shape.nope}, &k_up[index]));
    MR_TRY(add({.tensor = tensor, .row_begin = row + shape.nope}, {shape.v, shape.latent},
               &v_up[index]));
  }
  return {};
}

Result<> Packer::vector(const std::string& name, int64_t size, const float** target) {
  MR_ASSIGN(const CheckpointTensor* tensor, find(name, {size}));
  if (is_quantized(*tensor->weight_format())) {
    return fail("tensor {} is of type {}; a vector must be F32, F16 or BF16", name,
                tensor->type_name());
  }
  vectors_.push_back({tensor, target, reserve(size * int64_t{sizeof(float)})});
  return {};
}

Result<Buffer> Packer::run(ThreadTeam& team, Progress& progress) {
  MR_ASSIGN(Buffer storage, Buffer::allocate(static_cast<size_t>(reserved_)));
  for (const MatrixJob& job : matrices_) job.target->panels = storage.data() + job.offset;
  for (const VectorJob& job : vectors_) {
    auto* values = storage.as<float>(static_cast<size_t>(job.offset));
    dequantize_row(*job.tensor->weight_format(), job.tensor->bytes.data(), values,
                   job.tensor->num_elements());
    *job.target = values;
  }
  pack_matrices(team, progress);
  return storage;
}

void Packer::pack_matrices(ThreadTeam& team, Progress& progress) const {
  // A piece is a run of panels of one matrix.
  struct Piece {
    size_t matrix;
    int64_t panel_begin;
    int64_t panel_end;
  };
  std::vector<Piece> pieces;
  std::vector<std::atomic<int64_t>> left(matrices_.size());
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const PackedMatrix& matrix = *matrices_[i].target;
    const int64_t run =
        std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, matrix.panel_bytes()));
    for (int64_t begin = 0; begin < matrix.num_panels(); begin += run) {
      pieces.push_back({i, begin, std::min(begin + run, matrix.num_panels())});
      left[i].fetch_add(1, std::memory_order_relaxed);
    }
  }
  progress.begin("packing weights", reserved_, true);
  std::atomic<size_t> next{0};
  team.run([&](int) {
    for (size_t p = next.fetch_add(1); p < pieces.size(); p = next.fetch_add(1)) {
      const Piece& piece = pieces[p];
      const MatrixSource& source = matrices_[piece.matrix].source;
      const PackedMatrix& matrix = *matrices_[piece.matrix].target;
      std::byte* dst = const_cast<std::byte*>(matrix.panel(piece.panel_begin));
      pack_panels(source, matrix, piece.panel_begin, piece.panel_end, dst);
      // Pages at once, from the one in which the piece begins to the last that it fills; if the
      // neighbour before is not done with the first, it reads that again. What is left goes with
      // the matrix's last piece.
      release_panels(checkpoint_, source, matrix, piece.panel_begin, piece.panel_end);
      if (left[piece.matrix].fetch_sub(1) == 1) release_matrix(checkpoint_, source, matrix);
      progress.advance((piece.panel_end - piece.panel_begin) * matrix.panel_bytes());
    }
  });
  progress.end();
}

}  // namespace millrace
