#include "weights/packer.h"

#include <atomic>
#include <mutex>

#include "tensor/weight_format.h"
#include "weights/panel_pieces.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;

// The first error of any thread.
class FirstError {
 public:
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void keep(Result<> result) {
    if (result) return;
    const std::lock_guard lock(mutex_);
    if (!failed()) error_ = std::move(result);
    failed_.store(true, std::memory_order_relaxed);
  }
  Result<> take() { return std::move(error_); }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Result<> error_;
};

}  // namespace

NameStyle Packer::style() const {
  return checkpoint_.is_gguf() ? NameStyle::kGguf : NameStyle::kHuggingFace;
}

bool Packer::has(const std::string& tensor_name) const {
  return checkpoint_.find(tensor_name) != nullptr;
}

Result<StoredMatrix> Packer::find(const std::string& module, MatrixShape shape) {
  MR_ASSIGN(StoredMatrix stored,
            find_stored_matrix(checkpoint_, quantization_, module, shape.n, shape.k));
  take(stored);
  return stored;
}

void Packer::take(const StoredMatrix& stored) {
  for (const CheckpointTensor* tensor : stored.tensors()) taken_.insert(tensor);
}

int64_t Packer::reserve(int64_t bytes) {
  const int64_t offset = reserved_;
  reserved_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Result<> Packer::add(const MatrixSource& source, MatrixShape shape, PackedMatrix* target) {
  auto layout = packed_layout(source, shape.n, shape.k);
  if (!layout) return fail("tensor {}: {}", source.stored.tensor->name, layout.error().message);
  *target = *layout;
  matrices_.push_back({source, target, reserve(layout->total_bytes())});
  return {};
}

Result<> Packer::matrix(const std::string& module, MatrixShape shape, PackedMatrix* target) {
  MR_ASSIGN(const StoredMatrix stored, find(module, shape));
  return add({.stored = stored}, shape, target);
}

Result<> Packer::matrix_f32(const std::string& module, MatrixShape shape, PackedMatrix* target) {
  MR_ASSIGN(const StoredMatrix stored, find(module, shape));
  return add({.stored = stored, .to_f32 = true}, shape, target);
}

Result<> Packer::matrices(const std::string& module, MatrixShape shape,
                          std::vector<PackedMatrix>& targets) {
  const auto count = static_cast<int64_t>(targets.size());
  MR_ASSIGN(const CheckpointTensor* tensor,
            find_weight(checkpoint_, module + ".weight", {count, shape.n, shape.k}));
  const StoredMatrix stored{.tensor = tensor};
  take(stored);
  for (int64_t i = 0; i < count; ++i) {
    MR_TRY(
        add({.stored = stored, .row_begin = i * shape.n}, shape, &targets[static_cast<size_t>(i)]));
  }
  return {};
}

Result<> Packer::kv_up(const std::string& module, KvUpShape shape, std::vector<PackedMatrix>& k_up,
                       std::vector<PackedMatrix>& v_up) {
  const int64_t head_rows = shape.nope + shape.v;
  MR_ASSIGN(const StoredMatrix stored, find(module, {shape.heads * head_rows, shape.latent}));
  for (int64_t head = 0; head < shape.heads; ++head) {
    const auto index = static_cast<size_t>(head);
    const int64_t row = head * head_rows;
    MR_TRY(add({.stored = stored, .row_begin = row, .transposed = true}, {shape.latent, shape.nope},
               &k_up[index]));
    MR_TRY(add({.stored = stored, .row_begin = row + shape.nope}, {shape.v, shape.latent},
               &v_up[index]));
  }
  return {};
}

Result<> Packer::vector(const std::string& name, int64_t size, const float** target) {
  MR_ASSIGN(const CheckpointTensor* tensor, find_weight(checkpoint_, name, {size}));
  taken_.insert(tensor);
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
  MR_TRY(pack_matrices(team, progress));
  return storage;
}

Result<> Packer::pack_matrices(ThreadTeam& team, Progress& progress) const {
  std::vector<PackedMatrix*> targets;
  std::vector<std::atomic<int64_t>> panels_left(matrices_.size());
  for (size_t i = 0; i < matrices_.size(); ++i) {
    targets.push_back(matrices_[i].target);
    panels_left[i] = matrices_[i].target->num_panels();
  }
  FirstError error;
  progress.begin("packing weights", reserved_, true);
  for_pieces(team, panel_pieces(targets), [&](const PanelPiece& piece) {
    const MatrixSource& source = matrices_[piece.matrix].source;
    const PackedMatrix& matrix = *targets[piece.matrix];
    if (piece.begin == 0) error.keep(check_contents(source.stored));
    pack_panels(source, matrix, piece.begin, piece.end,
                const_cast<std::byte*>(matrix.panel(piece.begin)));
    // Pages at once, from the one in which the piece begins to the last that it fills; if the
    // neighbour before is not done with the first, it reads that again. What is left goes with
    // the matrix's last piece.
    release_panels(checkpoint_, source, matrix, piece.begin, piece.end);
    const int64_t panels = piece.end - piece.begin;
    if (panels_left[piece.matrix].fetch_sub(panels) == panels) {
      release_matrix(checkpoint_, source, matrix);
    }
    progress.advance(panels * matrix.panel_bytes());
    return !error.failed();
  });
  progress.end();
  return error.take();
}

}  // namespace millrace
