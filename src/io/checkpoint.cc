#include "io/checkpoint.h"

#include <filesystem>
#include <utility>

#include "io/files.h"
#include "io/json.h"
#include "io/model_path.h"
#include "io/safetensors.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::variant<WeightFormat, DType> type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return WeightFormat::kF32;
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return WeightFormat::kBF16;
    default:
      return dtype;
  }
}

// What a path means: a GGUF file, or a folder with config.json and the safetensors to read.
struct Place {
  bool gguf = false;
  std::string file;    // GGUF file; safetensors file, index or folder
  std::string folder;  // of tokenizer files and config.json
};

std::string parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? "." : parent.string();
}

Result<Place> locate(const std::string& path) {
  if (!path_exists(path)) return fail("{}: no such file or folder", path);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
      return Place{false, path, parent_of(path)};
    }
    return Place{true, path, parent_of(path)};
  }
  if (path_exists(fs::path(path) / "config.json")) return Place{false, path, path};
  auto gguf = find_gguf_in(path);
  if (!gguf) return fail("{}: no config.json in this folder, and {}", path, gguf.error().message);
  return Place{true, *gguf, path};
}

}  // namespace

std::optional<WeightFormat> CheckpointTensor::weight_format() const {
  if (const auto* format = std::get_if<WeightFormat>(&type)) return *format;
  return std::nullopt;
}

std::string_view CheckpointTensor::type_name() const {
  return std::visit([](auto value) { return name_of(value); }, type);
}

int64_t CheckpointTensor::num_elements() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  return open(path, Weights::kNeeded);
}

Result<Checkpoint> Checkpoint::open_config(const std::string& path) {
  return open(path, Weights::kLeftOut);
}

Result<Checkpoint> Checkpoint::open_with_or_without_weights(const std::string& path) {
  return open(path, Weights::kIfThere);
}

Result<Checkpoint> Checkpoint::open(const std::string& path, Weights weights) {
  MR_ASSIGN(const Place place, locate(path));
  Checkpoint result;
  result.path_ = path;
  result.folder_ = place.folder;
  if (place.gguf) {
    MR_ASSIGN(Gguf gguf, Gguf::open(place.file));
    for (const auto& [name, tensor] : gguf.tensors()) {
      result.tensors_.emplace(
          name, CheckpointTensor{name, tensor.format, tensor.shape, tensor.bytes, tensor.file});
    }
    result.gguf_ = std::make_unique<Gguf>(std::move(gguf));
    return result;
  }
  const fs::path folder(place.folder);
  MR_ASSIGN(result.config_json_, read_json_file((folder / "config.json").string()));
  const fs::path generation = folder / "generation_config.json";
  if (path_exists(generation)) {
    MR_ASSIGN(result.generation_config_json_, read_json_file(generation.string()));
  }
  if (weights == Weights::kLeftOut) return result;
  if (weights == Weights::kIfThere && !has_safetensors(place.file)) return result;
  MR_ASSIGN(Safetensors safetensors, Safetensors::open(place.file));
  for (const auto& [name, tensor] : safetensors.tensors()) {
    result.tensors_.emplace(name, CheckpointTensor{name, type_of(tensor.dtype), tensor.shape,
                                                   tensor.bytes, tensor.file});
  }
  result.safetensors_files_ = std::move(safetensors).take_files();
  return result;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

int64_t Checkpoint::total_bytes() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors_) total += static_cast<int64_t>(tensor.bytes.size());
  return total;
}

void Checkpoint::release(const CheckpointTensor& tensor, int64_t offset, int64_t bytes) const {
  const auto& files = gguf_ ? gguf_->files() : safetensors_files_;
  const MappedFile& file = files[static_cast<size_t>(tensor.file)];
  file.release(tensor.bytes.data() - file.bytes().data() + offset, bytes);
}

void Checkpoint::release(const CheckpointTensor& tensor) const {
  release(tensor, 0, static_cast<int64_t>(tensor.bytes.size()));
}

}  // namespace millrace
