#include "weights/model_weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/checkpoint_config.h"
#include "io/safetensors.h"
#include "tensor/packing.h"
#include "weights/checkpoint_sizes.h"
#include "weights/tensor_names.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A copy of a golden model whose tensors a test may change before it is written again.
class ModelWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(folder_);
    const fs::path source = fs::path(MILLRACE_TEST_DATA) / "golden" / "qwen3";
    fs::copy_file(source / "config.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
    auto file = Safetensors::open((source / "model.safetensors").string());
    ASSERT_TRUE(file) << file.error().message;
    source_ = std::make_unique<Safetensors>(std::move(*file));
  }

  void TearDown() override { fs::remove_all(folder_); }

  // Writes the model with tensor `name` left out, or with another shape or type if one is given.
  void write(const std::string& name, const std::vector<int64_t>& shape = {},
             DType dtype = DType::kBF16) {
    SafetensorsWriter writer;
    for (const std::string& extra : extra_) {
      writer.add(extra, DType::kF32, {64}, std::vector<float>(64));
    }
    for (const auto& [tensor_name, tensor] : source_->tensors()) {
      if (tensor_name != name) {
        writer.add(tensor_name, tensor.dtype, tensor.shape, tensor.bytes);
      } else if (!shape.empty()) {
        int64_t bytes = size_of(dtype);
        for (const int64_t size : shape) bytes *= size;
        writer.add(name, dtype, shape, std::vector<std::byte>(static_cast<size_t>(bytes)));
      }
    }
    ASSERT_TRUE(writer.write((folder_ / "model.safetensors").string()));
  }

  Result<ModelWeights> load() {
    MR_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder_.string()));
    MR_ASSIGN(const ModelConfig config, read_model_config(checkpoint));
    ThreadTeam team(3, 2);
    NoProgress progress;
    return load_model_weights(checkpoint, config, team, progress);
  }

  std::string error() {
    const auto weights = load();
    return weights ? "" : weights.error().message.substr(folder_.string().size());
  }

  fs::path folder_;
  std::unique_ptr<Safetensors> source_;
  std::vector<std::string> extra_;  // vectors to be written beside the model's
};

TEST_F(ModelWeightsTest, PacksEveryRowAsTheCheckpointHasIt) {
  write("");
  const auto weights = load();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::string name = tensor_name(NameStyle::kHuggingFace, LayerTensor::kDown, 1);
  const SafetensorsTensor* tensor = source_->find(name);
  ASSERT_NE(tensor, nullptr);
  const PackedMatrix& matrix = weights->layers[1].mlp.down.matrix;
  ASSERT_EQ(matrix.n, tensor->shape[0]);
  ASSERT_EQ(matrix.k, tensor->shape[1]);
  std::vector<float> packed(static_cast<size_t>(matrix.k)), expected(packed.size());
  for (int64_t row = 0; row < matrix.n; ++row) {
    unpack_panel_row(matrix, row, packed.data());
    dequantize_row(WeightFormat::kBF16, tensor->bytes.data() + row * matrix.k * 2, expected.data(),
                   matrix.k);
    EXPECT_EQ(packed, expected) << "row " << row;
  }
  EXPECT_EQ(weights->head.panels, weights->embedding.panels) << "qwen3's head is tied";
}

TEST_F(ModelWeightsTest, ErrorsNameTheTensor) {
  write("model.layers.1.mlp.down_proj.weight");
  EXPECT_NE(error().find("tensor model.layers.1.mlp.down_proj.weight is missing; the configuration "
                         "asks for one of shape ["),
            std::string::npos)
      << error();
  write("model.norm.weight", {3});
  EXPECT_NE(error().find("tensor model.norm.weight has shape [3]; the configuration asks for ["),
            std::string::npos)
      << error();
  write("model.layers.0.self_attn.q_norm.weight", {16}, DType::kI32);
  EXPECT_NE(error().find("tensor model.layers.0.self_attn.q_norm.weight"), std::string::npos)
      << error();
}

TEST_F(ModelWeightsTest, TensorsThatWouldBeLeftOutAreErrors) {
  for (const char* extra :
       {"model.layers.1.self_attn.q_proj.bias", "model.layers.0.mlp.gate_proj.bias",
        "model.layers.0.post_feedforward_layernorm.weight",
        "model.layers.99.input_layernorm.weight", "lm_head.bias", "model.norm.bias"}) {
    extra_ = {extra};
    write("");
    EXPECT_NE(error().find(fmt::format(
                  ": tensor {} is there, but the configuration has no place for it", extra)),
              std::string::npos)
        << error();
  }
}

TEST_F(ModelWeightsTest, TensorsThatSayNothingAreLeftOut) {
  // The head is tied, and the last one belongs to another task.
  extra_ = {"model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight", "score.weight"};
  write("");
  EXPECT_EQ(error(), "");
}

TEST(CheckpointSizes, AreWhatPackingTakes) {
  const auto checkpoint =
      Checkpoint::open((fs::path(MILLRACE_TEST_DATA) / "golden" / "qwen3").string());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto config = read_model_config(*checkpoint);
  ASSERT_TRUE(config) << config.error().message;
  ThreadTeam team(1, 1);
  NoProgress progress;
  const auto weights = load_model_weights(*checkpoint, *config, team, progress);
  ASSERT_TRUE(weights) << weights.error().message;
  // Each tensor begins at a multiple of 64 bytes.
  const auto gaps = 64 * static_cast<int64_t>(checkpoint->tensors().size());
  int64_t elements = 0;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    elements += tensor.num_elements();
    bytes += packed_bytes(tensor);
  }
  EXPECT_LE(bytes, weights->total_bytes());
  EXPECT_GE(bytes + gaps, weights->total_bytes());
  EXPECT_EQ(num_parameters(*checkpoint), elements);
  EXPECT_EQ(num_parameters(*config), elements);
}

}  // namespace
}  // namespace millrace
