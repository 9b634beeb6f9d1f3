#include "golden_case.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "io/safetensors.h"

namespace millrace {
namespace {

template <typename T>
Result<std::vector<T>> read_vector(const Safetensors& file, const std::string& name) {
  const SafetensorsTensor* tensor = file.find(name);
  if (tensor == nullptr) return fail("no tensor {}", name);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

}  // namespace

std::vector<std::vector<int32_t>> GoldenCase::prompt_ids() const {
  std::vector<std::vector<int32_t>> ids;
  for (const GoldenPrompt& prompt : prompts) ids.push_back(prompt.ids);
  return ids;
}

Result<GoldenCase> read_golden_case(const std::string& name) {
  GoldenCase golden;
  golden.folder = std::string(MILLRACE_TEST_DATA) + "/golden/" + name;
  MR_ASSIGN(const Safetensors file, Safetensors::open(golden.folder + "/expected.safetensors"));
  for (int i = 0; file.find(fmt::format("ids_{}", i)) != nullptr; ++i) {
    GoldenPrompt prompt;
    MR_ASSIGN(prompt.ids, read_vector<int32_t>(file, fmt::format("ids_{}", i)));
    MR_ASSIGN(prompt.logits, read_vector<float>(file, fmt::format("logits_{}", i)));
    MR_ASSIGN(prompt.greedy, read_vector<int32_t>(file, fmt::format("greedy_{}", i)));
    for (int l = 0; file.find(fmt::format("topk_{}_{}", i, l)) != nullptr; ++l) {
      MR_ASSIGN(prompt.topk.emplace_back(),
                read_vector<int32_t>(file, fmt::format("topk_{}_{}", i, l)));
      // Layers that share a selection share its gap.
      const std::string gap = fmt::format("topk_gap_{}_{}", i, l);
      if (file.find(gap) != nullptr) {
        MR_ASSIGN(prompt.topk_gap.emplace_back(), read_vector<float>(file, gap));
      } else {
        prompt.topk_gap.push_back(prompt.topk_gap.back());
      }
    }
    golden.prompts.push_back(std::move(prompt));
  }
  if (golden.prompts.empty()) return fail("{}: no prompts", golden.folder);
  return golden;
}

EngineConfig forward_config(const std::vector<std::vector<int32_t>>& prompts, int64_t num_greedy) {
  EngineConfig engine;
  engine.purpose = Purpose::kForward;
  engine.threads = 2;
  engine.max_num_seqs = static_cast<int>(prompts.size());
  engine.num_blocks = blocks_for_prompts(prompts, num_greedy, engine.block_size);
  int64_t longest = 0;
  for (const auto& ids : prompts) longest = std::max(longest, static_cast<int64_t>(ids.size()));
  engine.max_model_len = longest + num_greedy;
  return engine;
}

Result<std::vector<PromptResult>> run_prompts(const std::string& model, const EngineConfig& engine,
                                              const std::vector<std::vector<int32_t>>& prompts,
                                              const BatchForwardOptions& options) {
  NoProgress progress;
  MR_ASSIGN(LoadedModel loaded, load_model(model, engine, progress));
  return run_batch_forward(*loaded.runner, prompts, options, progress);
}

double max_abs_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= most)) most = difference;
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  }
  return most;
}

}  // namespace millrace
