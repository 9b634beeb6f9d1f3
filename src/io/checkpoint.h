// One view over both kinds of checkpoint: a GGUF model, or a folder with safetensors and
// config.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "io/gguf.h"
#include "io/mapped_file.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace millrace {

// A tensor of a checkpoint. Views into the checkpoint's mapped files.
struct CheckpointTensor {
  std::string name;
  // The format of a weight; element types that no weight has (int64, float8, ...) stay a DType.
  std::variant<WeightFormat, DType> type;
  std::vector<int64_t> shape;  // outermost first: [rows (out), columns (in)]
  std::span<const std::byte> bytes;
  int file = 0;

  std::optional<WeightFormat> weight_format() const;
  // "Q4_K", "BF16", "int64", ...
  std::string_view type_name() const;
  int64_t num_elements() const;
};

// Owns the mapped files. Movable; tensors' views stay valid as long as it lives.
class Checkpoint {
 public:
  // `path`: a GGUF file (any part of a split one), a folder with config.json and safetensors, a
  // .safetensors file beside its config.json, or a folder that holds exactly one GGUF model.
  static Result<Checkpoint> open(const std::string& path);

  // As open(), for a model whose weights are not wanted: a folder needs no safetensors, and none
  // are read.
  static Result<Checkpoint> open_config(const std::string& path);

  // As open(); but a folder with config.json may be without safetensors: then there are no tensors.
  static Result<Checkpoint> open_with_or_without_weights(const std::string& path);

  bool is_gguf() const { return gguf_ != nullptr; }
  // The GGUF model, or null.
  const Gguf* gguf() const { return gguf_.get(); }
  // config.json and generation_config.json (null if there is none); both null for GGUF.
  const nlohmann::json& config_json() const { return config_json_; }
  const nlohmann::json& generation_config_json() const { return generation_config_json_; }

  // The path as given, and the folder in which tokenizer files stand.
  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }

  const std::map<std::string, CheckpointTensor, std::less<>>& tensors() const { return tensors_; }
  // Null if there is no such tensor.
  const CheckpointTensor* find(std::string_view name) const;
  // Bytes of all tensors.
  int64_t total_bytes() const;

  // Lets go of the pages of a part of a tensor that was read for the last time; see
  // MappedFile::release. Thread-safe.
  void release(const CheckpointTensor& tensor, int64_t offset, int64_t bytes) const;
  void release(const CheckpointTensor& tensor) const;

 private:
  enum class Weights : uint8_t { kNeeded, kIfThere, kLeftOut };
  static Result<Checkpoint> open(const std::string& path, Weights weights);

  std::string path_;
  std::string folder_;
  nlohmann::json config_json_;
  nlohmann::json generation_config_json_;
  std::unique_ptr<Gguf> gguf_;
  std::vector<MappedFile> safetensors_files_;
  std::map<std::string, CheckpointTensor, std::less<>> tensors_;
};

}  // namespace millrace
