// The engine on real (tiny) models: the same bytes whatever the batch, budget, pool and threads.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/progress.h"
#include "engine/engine.h"
#include "runtime/load_model.h"

namespace millrace {
namespace {

struct Layout {
  const char* name;
  int threads = 1;
  int max_num_seqs = 16;
  int64_t max_num_batched_tokens = 512;
  int64_t max_chunk = 0;
  int block_size = 16;
  int64_t num_tokens = 4096;  // of the pool
  int64_t max_model_len = 128;
  bool to_the_end = false;  // answers go on to max_model_len
};

// Every token and the bits of every log-probability, by request and sample.
using Answers = std::map<std::pair<RequestId, int>, std::vector<std::pair<int32_t, float>>>;

std::vector<Request> requests(const Layout& layout) {
  std::mt19937 random(17);
  std::vector<Request> list;
  for (size_t i = 0; i < 12; ++i) {
    Request& request = list.emplace_back();
    const size_t length = 1 + i * i % 90;
    for (size_t j = 0; j < length; ++j) {
      request.prompt_token_ids.push_back(static_cast<int32_t>(random() % 200));
    }
    request.params.temperature = i % 3 == 0 ? 0 : 0.9;
    request.params.top_p = i % 2 ? 0.95 : 1;
    request.params.seed = i;
    request.params.n = i == 4 ? 3 : 1;
    if (!layout.to_the_end) request.params.max_tokens = 8 + static_cast<int64_t>(i);
    request.params.ignore_eos = true;
    request.params.logprobs = 0;
  }
  return list;
}

struct Outcome {
  Answers answers;
  int64_t preempted = 0;
};

struct Model {
  const char* name;
  const char* file = "";
  ActivationQuantization activations = ActivationQuantization::kAuto;
};

Result<Outcome> run(const Model& model, const Layout& layout) {
  EngineConfig config;
  config.activation_quantization = model.activations;
  config.threads = layout.threads;
  config.max_model_len = layout.max_model_len;
  config.max_num_seqs = layout.max_num_seqs;
  config.max_num_batched_tokens =
      std::max<int64_t>(layout.max_num_batched_tokens, layout.max_num_seqs);
  config.block_size = layout.block_size;
  config.num_blocks = layout.num_tokens / layout.block_size;
  const std::string path = std::string(MILLRACE_TEST_DATA) + "/golden/" + model.name + model.file;
  NoProgress progress;
  MR_ASSIGN(LoadedModel loaded, load_model(path, config, progress));
  EngineOptions options;
  options.num_blocks = loaded.num_blocks;
  options.block_size = loaded.block_size;
  options.max_model_len = loaded.max_model_len;
  options.limits = {layout.max_num_batched_tokens, layout.max_num_seqs, layout.max_chunk};
  options.isa = loaded.runner->model().execution().isa;
  MR_ASSIGN(const auto engine, Engine::create(options, *loaded.runner));
  for (const Request& request : requests(layout)) {
    MR_ASSIGN(const RequestId id, engine->add_request(request));
    static_cast<void>(id);
  }
  Outcome outcome;
  while (engine->has_work()) {
    MR_ASSIGN(const StepOutput step, engine->step());
    outcome.preempted += step.num_preempted;
    for (const SequenceOutput& output : step.outputs) {
      auto& answer = outcome.answers[{output.request_id, output.sample_index}];
      for (size_t i = 0; i < output.token_ids.size(); ++i) {
        answer.emplace_back(output.token_ids[i], output.logprobs[i].logprob);
      }
    }
  }
  return outcome;
}

TEST(EngineOnAModel, TheSameBytesInEveryLayout) {
  const Model models[] = {
      {"llama_gqa"},
      {"qwen3"},
      {"mixed_formats", "/model.gguf", ActivationQuantization::kInt8},
      {"mixed_formats", "/model.gguf", ActivationQuantization::kNone},
      {"qwen3_moe"},
      {"deepseek_v3"},
      {"deepseek_v32"},
      {"glm_moe_dsa_shared"},
  };
  for (const Model& model : models) {
    SCOPED_TRACE(fmt::format("{}, {}", model.name, name_of(model.activations)));
    const auto alone = run(model, {.name = "one at a time", .max_num_seqs = 1});
    ASSERT_TRUE(alone.has_value()) << alone.error().message;
    ASSERT_EQ(alone->answers.size(), 14u);
    const Layout layouts[] = {
        {.name = "16 at a time"},
        {.name = "3 threads", .threads = 3},
        {.name = "chunks of 1", .max_chunk = 1},
        {.name = "chunks of 7", .threads = 2, .max_chunk = 7},
        {.name = "chunks of 64", .max_chunk = 64},
        {.name = "budget of 5", .max_num_seqs = 4, .max_num_batched_tokens = 5},
        {.name = "blocks of 32", .block_size = 32},
        {.name = "little pool", .num_tokens = 160},
    };
    for (const Layout& layout : layouts) {
      const auto outcome = run(model, layout);
      ASSERT_TRUE(outcome.has_value()) << layout.name << ": " << outcome.error().message;
      EXPECT_EQ(outcome->answers, alone->answers) << layout.name;
      EXPECT_EQ(outcome->preempted > 0, layout.num_tokens == 160) << layout.name;
    }
  }
}

TEST(EngineOnAModel, ContextsThatAreNoMultipleOfTheBlock) {
  for (const Model model : {Model{"llama_gqa"}, Model{"glm_moe_dsa_shared"}}) {
    for (const int64_t length : {97, 111}) {
      SCOPED_TRACE(fmt::format("{}, context of {}", model.name, length));
      const auto alone = run(model, {.name = "one at a time",
                                     .max_num_seqs = 1,
                                     .max_model_len = length,
                                     .to_the_end = true});
      ASSERT_TRUE(alone.has_value()) << alone.error().message;
      const auto prompts = requests({});
      for (const auto& [key, answer] : alone->answers) {
        const auto request = static_cast<size_t>(key.first - alone->answers.begin()->first.first);
        EXPECT_EQ(prompts[request].prompt_token_ids.size() + answer.size(),
                  static_cast<size_t>(length));
      }
      const Layout layouts[] = {
          {.name = "blocks of 16"},
          {.name = "blocks of 48", .threads = 2, .block_size = 48},
          {.name = "blocks of 64, chunks of 7", .max_chunk = 7, .block_size = 64},
          {.name = "little pool", .num_tokens = 256},
      };
      for (Layout layout : layouts) {
        layout.max_model_len = length;
        layout.to_the_end = true;
        const auto outcome = run(model, layout);
        ASSERT_TRUE(outcome.has_value()) << layout.name << ": " << outcome.error().message;
        EXPECT_EQ(outcome->answers, alone->answers) << layout.name;
        EXPECT_EQ(outcome->preempted > 0, layout.num_tokens == 256) << layout.name;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
