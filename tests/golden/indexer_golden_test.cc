// The indexer's choice of keys, layer by layer, on what a float32 run feeds it: with f32 keys the
// reference's, with int8 keys nearly so. (End to end, on random weights, int8 selections drift
// apart from layer to layer; that says nothing of the indexer.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "golden_case.h"
#include "kernels/indexer.h"
#include "models/rope_frequencies.h"
#include "tensor/mla_layout.h"
#include "weights/test_models.h"

namespace millrace {
namespace {

using testing::values_of;

constexpr float kLatentEps = 1e-6f;
constexpr float kLeastGap = 1e-5f;   // below it rounding may choose another key
constexpr double kInCommon = 0.985;  // of the keys that int8 selects
constexpr int kBlockSize = 16;

// y = W x; W is [outputs][inputs].
std::vector<float> multiply(const std::vector<float>& w, const std::vector<float>& x) {
  std::vector<float> y(w.size() / x.size());
  for (size_t n = 0; n < y.size(); ++n) {
    double sum = 0;
    for (size_t k = 0; k < x.size(); ++k) sum += static_cast<double>(w[n * x.size() + k]) * x[k];
    y[n] = static_cast<float>(sum);
  }
  return y;
}

std::vector<float> rms_norm(std::vector<float> x, const std::vector<float>& weight, float eps) {
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(x[i] * scale) * weight[i];
  return x;
}

std::vector<float> layer_norm(std::vector<float> x, const std::vector<float>& weight,
                              const std::vector<float>& bias) {
  const auto n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (const float v : x) squares += (v - mean) * (v - mean);
  const double scale = 1 / std::sqrt(squares / n + kLatentEps);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>((x[i] - mean) * scale) * weight[i] + bias[i];
  }
  return x;
}

// Rotates the first elements of a head.
void rotate(float* head, const ModelConfig& config, const std::vector<float>& inv_freq,
            size_t position) {
  const size_t half = inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inv_freq[i];
    const double c = std::cos(static_cast<double>(angle)) * config.rope.attention_factor;
    const double s = std::sin(static_cast<double>(angle)) * config.rope.attention_factor;
    float& a = head[config.indexer->interleaved ? 2 * i : i];
    float& b = head[config.indexer->interleaved ? 2 * i + 1 : i + half];
    const double old_a = a;
    a = static_cast<float>(old_a * c - b * s);
    b = static_cast<float>(b * c + old_a * s);
  }
}

// One layer's weights on the way from the residual stream to the indexer.
struct IndexerLayer {
  IndexerLayer(const Checkpoint& checkpoint, size_t layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const auto read = [&](const char* name) { return values_of(checkpoint, prefix + name); };
    input_norm = read("input_layernorm.weight");
    q_a = read("self_attn.q_a_proj.weight");
    q_a_norm = read("self_attn.q_a_layernorm.weight");
    wq_b = read("self_attn.indexer.wq_b.weight");
    wk = read("self_attn.indexer.wk.weight");
    k_norm = read("self_attn.indexer.k_norm.weight");
    k_norm_bias = read("self_attn.indexer.k_norm.bias");
    weights_proj = read("self_attn.indexer.weights_proj.weight");
  }

  std::vector<float> input_norm, q_a, q_a_norm, wq_b, wk, k_norm, k_norm_bias, weights_proj;
};

// What the indexer reads, for each token: [tokens][heads * dim], [tokens][heads], [tokens][dim].
struct IndexerInputs {
  std::vector<float> q, weights, keys;
};

void append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// `x`: the residual stream before the layer, [tokens][hidden].
IndexerInputs indexer_inputs(const IndexerLayer& layer, const ModelConfig& config,
                             const std::vector<float>& x) {
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const auto heads = static_cast<size_t>(config.indexer->num_heads);
  const auto dim = static_cast<size_t>(config.indexer->head_dim);
  const std::vector<float> inv_freq = inverse_frequencies(config.rope);
  IndexerInputs inputs;
  for (size_t token = 0; token < x.size() / hidden; ++token) {
    const float* row = x.data() + token * hidden;
    const auto h = rms_norm({row, row + hidden}, layer.input_norm, config.rms_norm_eps);
    const auto r = rms_norm(multiply(layer.q_a, h), layer.q_a_norm, kLatentEps);
    std::vector<float> q = multiply(layer.wq_b, r);
    std::vector<float> key = layer_norm(multiply(layer.wk, h), layer.k_norm, layer.k_norm_bias);
    for (size_t i = 0; i < heads; ++i) rotate(q.data() + i * dim, config, inv_freq, token);
    rotate(key.data(), config, inv_freq, token);
    std::vector<float> weights = multiply(layer.weights_proj, h);
    for (float& w : weights) w /= std::sqrt(static_cast<float>(heads));
    append(inputs.q, q);
    append(inputs.weights, weights);
    append(inputs.keys, key);
  }
  return inputs;
}

// What the kernels select for each token from keys cached as `dtype`, ascending.
std::vector<std::vector<int32_t>> select(const IndexerInputs& inputs, const IndexerConfig& indexer,
                                         DType dtype) {
  const int64_t tokens = static_cast<int64_t>(inputs.keys.size()) / indexer.head_dim;
  const int64_t blocks = (tokens + kBlockSize - 1) / kBlockSize;
  const MlaLayout layout = MlaLayout::make({.dtype = DType::kF32,
                                            .index_dtype = dtype,
                                            .block_size = kBlockSize,
                                            .latent = 4,
                                            .rope = 4,
                                            .index_dim = indexer.head_dim},
                                           {1});
  auto memory = Buffer::allocate(static_cast<size_t>(layout.block_bytes * blocks));
  EXPECT_TRUE(memory);
  const MlaLayerView cache = mla_layer_view(layout, 0, memory->data(), blocks);
  std::vector<int64_t> slots(static_cast<size_t>(tokens));
  std::iota(slots.begin(), slots.end(), 0);
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  const AttentionSequence sequence = {0, static_cast<int32_t>(tokens), 0, table.data()};
  const IndexerKernels& kernels = indexer_kernels(*resolve_isa({}, detect_cpu_features()));
  kernels.write({inputs.keys.data(), indexer.head_dim, slots.data(), cache}, 0, tokens);

  std::vector<int32_t> positions(static_cast<size_t>(tokens * indexer.topk));
  std::vector<int32_t> leaf_begin(static_cast<size_t>(tokens * 17));
  auto queries = Buffer::allocate(static_cast<size_t>(
      tokens * index_query_bytes(indexer.num_heads, indexer.head_dim, cache.index_dtype)));
  EXPECT_TRUE(queries);
  const IndexerArgs args = {.q = inputs.q.data(),
                            .q_stride = int64_t{indexer.num_heads} * indexer.head_dim,
                            .weights = inputs.weights.data(),
                            .weights_stride = indexer.num_heads,
                            .num_heads = indexer.num_heads,
                            .topk = indexer.topk,
                            .cache = cache,
                            .queries = queries->data(),
                            .sequences = &sequence,
                            .positions = positions.data(),
                            .selection_stride = indexer.topk,
                            .leaf_begin = leaf_begin.data()};
  kernels.pack(args, {0, static_cast<int32_t>(tokens), 0, indexer.num_heads}, nullptr);
  auto scratch = Buffer::allocate(static_cast<size_t>(indexer_scratch_bytes(indexer.topk)));
  EXPECT_TRUE(scratch);
  std::vector<std::vector<int32_t>> selections;
  for (int32_t token = 0; token < tokens; ++token) {
    kernels.run_item(args,
                     {.sequence = 0,
                      .token_begin = token,
                      .num_tokens = 1,
                      .position_begin = 0,
                      .position_end = tokens},
                     scratch->data());
    const auto first = positions.begin() + static_cast<ptrdiff_t>(token) * indexer.topk;
    auto& selection = selections.emplace_back(first, first + leaf_begin[17 * token + 16]);
    std::sort(selection.begin(), selection.end());
  }
  return selections;
}

int64_t num_common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return static_cast<int64_t>(common.size());
}

// A row of a golden's selection, without the -1 at its end.
std::vector<int32_t> golden_row(const std::vector<int32_t>& topk, size_t rows, size_t row) {
  const size_t columns = topk.size() / rows;
  std::vector<int32_t> positions(topk.begin() + static_cast<ptrdiff_t>(row * columns),
                                 topk.begin() + static_cast<ptrdiff_t>((row + 1) * columns));
  std::erase(positions, -1);
  return positions;
}

class IndexerGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto golden = read_golden_case(GetParam());
    ASSERT_TRUE(golden) << golden.error().message;
    golden_ = std::move(*golden);
    const auto prompts = golden_.prompt_ids();
    auto results =
        run_prompts(golden_.folder, forward_config(prompts, 0), prompts, {.capture_hidden = true});
    ASSERT_TRUE(results) << results.error().message;
    results_ = std::move(*results);
  }

  // The residual stream before a layer.
  std::vector<float> input_of(const std::vector<float>& embedding, size_t hidden, size_t prompt,
                              size_t layer) const {
    if (layer > 0) return results_[prompt].hidden[layer - 1];
    std::vector<float> x;
    for (const int32_t id : golden_.prompts[prompt].ids) {
      const auto first = embedding.begin() + id * static_cast<ptrdiff_t>(hidden);
      x.insert(x.end(), first, first + static_cast<ptrdiff_t>(hidden));
    }
    return x;
  }

  GoldenCase golden_;
  std::vector<PromptResult> results_;
};

TEST_P(IndexerGolden, Int8KeysSelectWhatF32KeysDo) {
  const auto checkpoint = Checkpoint::open(golden_.folder);
  ASSERT_TRUE(checkpoint);
  const auto config = read_model_config(*checkpoint);
  ASSERT_TRUE(config);
  const auto embedding = values_of(*checkpoint, "model.embed_tokens.weight");
  const auto hidden = static_cast<size_t>(config->hidden_size);
  const auto topk = static_cast<size_t>(config->indexer->topk);
  int64_t selected = 0, common = 0;
  size_t full_layers = 0;
  for (size_t layer = 0; layer < config->indexer->is_full.size(); ++layer) {
    if (config->indexer->is_full[layer] == 0) continue;
    ++full_layers;
    const IndexerLayer weights(*checkpoint, layer);
    for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
      const GoldenPrompt& expected = golden_.prompts[prompt];
      const size_t rows = expected.ids.size();
      const auto inputs =
          indexer_inputs(weights, *config, input_of(embedding, hidden, prompt, layer));
      const auto exact = select(inputs, *config->indexer, DType::kF32);
      const auto int8 = select(inputs, *config->indexer, DType::kI8);
      for (size_t row = 0; row < rows; ++row) {
        if (expected.topk_gap[layer][row] > kLeastGap) {
          EXPECT_EQ(exact[row], golden_row(expected.topk[layer], rows, row))
              << "layer " << layer << " prompt " << prompt << " row " << row;
        }
        ASSERT_EQ(int8[row].size(), std::min(row + 1, topk));
        if (row < topk) continue;  // all keys are selected
        selected += static_cast<int64_t>(topk);
        common += num_common(exact[row], int8[row]);
      }
    }
  }
  EXPECT_GE(full_layers, 3u);
  EXPECT_GT(selected, 5000);
  const double share = static_cast<double>(common) / static_cast<double>(selected);
  RecordProperty("in_common", fmt::format("{:.4f}", share));
  EXPECT_GE(share, kInCommon);
  EXPECT_LT(share, 1.0);  // int8 keys are not f32 ones
}

INSTANTIATE_TEST_SUITE_P(Cases, IndexerGolden,
                         ::testing::Values("deepseek_v32", "glm_moe_dsa_full",
                                           "glm_moe_dsa_shared"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace millrace
