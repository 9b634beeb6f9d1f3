#include "weights/packer.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tensor/packing.h"
#include "weights/checkpoint_sizes.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;
// A thread packs about this much before it takes the next piece.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

}  // namespace

Result<const CheckpointTensor*> Packer::find(const std::string& name,
                                             const std::vector<int64_t>& shape) const {
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
  return tensor;
}

int64_t Packer::reserve(const CheckpointTensor& tensor) {
  const int64_t offset = reserved_;
  reserved_ += (packed_bytes(tensor) + kAlignment - 1) / kAlignment * kAlignment;
  taken_.insert(&tensor);
  return offset;
}

Result<> Packer::matrix(const std::string& name, int64_t n, int64_t k, PackedMatrix* target) {
  MR_ASSIGN(const CheckpointTensor* tensor, find(name, {n, k}));
  auto layout = packed_layout(*tensor->weight_format(), n, k);
  if (!layout) return fail("tensor {}: {}", name, layout.error().message);
  *target = *layout;
  matrices_.push_back({tensor, target, reserve(*tensor)});
  return {};
}

Result<> Packer::vector(const std::string& name, int64_t size, const float** target) {
  MR_ASSIGN(const CheckpointTensor* tensor, find(name, {size}));
  if (is_quantized(*tensor->weight_format())) {
    return fail("tensor {} is of type {}; a vector must be F32, F16 or BF16", name,
                tensor->type_name());
  }
  vectors_.push_back({tensor, target, reserve(*tensor)});
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
    const MatrixJob* job;
    int64_t panel_begin;
    int64_t panel_end;
    size_t matrix;
  };
  std::vector<Piece> pieces;
  std::vector<std::atomic<int64_t>> left(matrices_.size());
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const PackedMatrix& matrix = *matrices_[i].target;
    const int64_t run =
        std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, matrix.panel_bytes()));
    for (int64_t begin = 0; begin < matrix.num_panels(); begin += run) {
      pieces.push_back({&matrices_[i], begin, std::min(begin + run, matrix.num_panels()), i});
      left[i].fetch_add(1, std::memory_order_relaxed);
    }
  }
  progress.begin("packing weights", reserved_, true);
  std::atomic<size_t> next{0};
  team.run([&](int) {
    for (size_t p = next.fetch_add(1); p < pieces.size(); p = next.fetch_add(1)) {
      const Piece& piece = pieces[p];
      const PackedMatrix& matrix = *piece.job->target;
      const CheckpointTensor& tensor = *piece.job->tensor;
      std::byte* dst = const_cast<std::byte*>(matrix.panel(piece.panel_begin));
      pack_panels({{.format = *tensor.weight_format(), .data = tensor.bytes.data(), .n = matrix.n}},
                  matrix, piece.panel_begin, piece.panel_end, dst);
      // Pages at once, from the one in which the piece begins to the last that it fills; if the
      // neighbour before is not done with the first, it reads that again. What is left goes with
      // the matrix's last piece.
      const int64_t row_bytes = static_cast<int64_t>(tensor.bytes.size()) / matrix.n;
      const int64_t row_begin = piece.panel_begin * kPanelWidth;
      const int64_t row_end = std::min(piece.panel_end * kPanelWidth, matrix.n);
      checkpoint_.release(tensor, row_begin * row_bytes, (row_end - row_begin) * row_bytes);
      if (left[piece.matrix].fetch_sub(1) == 1) checkpoint_.release(tensor);
      progress.advance((piece.panel_end - piece.panel_begin) * matrix.panel_bytes());
    }
  });
  progress.end();
}

}  // namespace millrace
