// For tests: golden models that are loaded as they are, or written again with other tensors.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "io/checkpoint_config.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/test_files.h"
#include "tensor/packing.h"
#include "weights/model_weights.h"

namespace millrace::testing {

inline std::string golden_folder(const std::string& name) {
  return (std::filesystem::path(MILLRACE_TEST_DATA) / "golden" / name).string();
}

inline Result<ModelWeights> load_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                         int threads = 2) {
  ThreadTeam team(threads, 2);
  NoProgress progress;
  return load_model_weights(checkpoint, config, team, progress);
}

// All of a packed matrix in fp32, [n][k].
inline std::vector<float> values_of(const PackedMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.n * matrix.k));
  for (int64_t row = 0; row < matrix.n; ++row) {
    unpack_panel_row(matrix, row, values.data() + row * matrix.k);
  }
  return values;
}

// All of a checkpoint's tensor in fp32.
inline std::vector<float> values_of(const Checkpoint& checkpoint, const std::string& name) {
  const CheckpointTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(tensor->num_elements()));
  dequantize_row(*tensor->weight_format(), tensor->bytes.data(), values.data(),
                 tensor->num_elements());
  return values;
}

// A golden model's tensors, to be changed and written to a folder of their own.
class ChangedModel {
 public:
  struct Tensor {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };

  explicit ChangedModel(const std::string& golden) {
    if (auto json = read_json_file(golden_folder(golden) + "/config.json")) {
      config = std::move(*json);
    }
    auto source = Safetensors::open(golden_folder(golden));
    if (!source) return;
    for (const auto& [name, tensor] : source->tensors()) {
      tensors[name] = {tensor.dtype, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}};
    }
  }

  template <typename T>
  void set(const std::string& name, DType dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    tensors[name] = {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
  }
  void zeros(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    int64_t bytes = size_of(dtype);
    for (const int64_t size : shape) bytes *= size;
    set(name, dtype, std::move(shape), std::vector<std::byte>(static_cast<size_t>(bytes)));
  }

  // Writes the tensors and the configuration.
  Result<Checkpoint> open() const {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors) {
      writer.add(name, tensor.dtype, tensor.shape, tensor.bytes);
    }
    MR_TRY(writer.write(folder_.file("model.safetensors")));
    folder_.write("config.json", config.dump());
    return Checkpoint::open(folder_.path());
  }
  const std::string& path() const { return folder_.path(); }

  // The error of loading it, without the path; empty if none.
  std::string error(const std::function<void(ModelConfig&)>& change = {}) const {
    auto checkpoint = open();
    if (!checkpoint) return checkpoint.error().message;
    auto model_config = read_model_config(*checkpoint);
    if (!model_config) return model_config.error().message;
    if (change) change(*model_config);
    auto weights = load_weights(*checkpoint, *model_config);
    if (weights) return "";
    return weights.error().message.substr(folder_.path().size() + 2);
  }

  std::map<std::string, Tensor> tensors;
  nlohmann::json config;  // config.json

 private:
  TempFolder folder_;
};

}  // namespace millrace::testing
