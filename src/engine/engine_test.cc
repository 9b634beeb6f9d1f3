#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/fake_runner.h"

namespace millrace {
namespace {

constexpr int64_t kVocab = 40;
constexpr int32_t kEos = 2;

struct Answer {
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;
  std::string text;
  std::optional<FinishReason> reason;
  bool operator==(const Answer&) const = default;
};
using Answers = std::map<std::pair<RequestId, int>, Answer>;

void take(const StepOutput& step, Answers& answers) {
  for (const SequenceOutput& output : step.outputs) {
    Answer& answer = answers[{output.request_id, output.sample_index}];
    EXPECT_FALSE(answer.reason.has_value()) << "output after the end";
    answer.token_ids.insert(answer.token_ids.end(), output.token_ids.begin(),
                            output.token_ids.end());
    for (const TokenLogprobs& logprobs : output.logprobs) {
      answer.logprobs.push_back(logprobs.logprob);
    }
    answer.text += output.text;
    answer.reason = output.finish_reason;
  }
}

struct RigOptions {
  int64_t num_blocks = 200;
  int64_t block_size = 4;
  int64_t max_model_len = 120;
  SchedulerLimits limits{64, 16, 0};
};

// An engine with its fake runner, driven to the end.
class Rig {
 public:
  explicit Rig(const RigOptions& setup) : runner(kVocab, setup.num_blocks, setup.block_size) {
    EngineOptions options;
    options.num_blocks = setup.num_blocks;
    options.block_size = setup.block_size;
    options.max_model_len = setup.max_model_len;
    options.limits = setup.limits;
    options.eos_token_ids = {kEos};
    engine = std::move(*Engine::create(options, runner));
  }

  RequestId add(const Request& request) {
    const Result<RequestId> id = engine->add_request(request);
    EXPECT_TRUE(id.has_value()) << id.error().message;
    return id.value_or(0);
  }

  Answers run() {
    while (engine->has_work()) {
      const Result<StepOutput> step = engine->step();
      if (!step) {
        ADD_FAILURE() << step.error().message;
        break;
      }
      preempted += step->num_preempted;
      take(*step, answers);
    }
    EXPECT_TRUE(runner.violations.empty()) << runner.violations.front();
    EXPECT_EQ(engine->num_free_blocks(), engine->options().num_blocks) << "blocks leaked";
    return answers;
  }

  FakeRunner runner;
  std::unique_ptr<Engine> engine;
  Answers answers;
  int64_t preempted = 0;
};

Request random_request(std::mt19937& random) {
  Request request;
  const size_t length = 1 + random() % 50;
  for (size_t i = 0; i < length; ++i) {
    request.prompt_token_ids.push_back(static_cast<int32_t>(random() % kVocab));
  }
  SamplingParams& params = request.params;
  params.temperature = random() % 3 == 0 ? 0.0 : 0.8;
  params.top_k = random() % 2 ? 12 : 0;
  params.top_p = random() % 2 ? 0.9 : 1.0;
  params.min_p = random() % 4 == 0 ? 0.05 : 0.0;
  params.repetition_penalty = random() % 3 == 0 ? 1.3 : 1.0;
  params.presence_penalty = random() % 3 == 0 ? 0.4 : 0.0;
  params.frequency_penalty = random() % 3 == 0 ? 0.2 : 0.0;
  if (random() % 3 == 0) params.logit_bias = {{5, 3.0}, {6, -100.0}};
  params.seed = random();
  params.n = random() % 4 == 0 ? 3 : 1;
  params.max_tokens = 1 + random() % 30;
  params.min_tokens = random() % 2 ? 0 : std::min<int64_t>(3, *params.max_tokens);
  params.ignore_eos = random() % 2;
  if (random() % 3 == 0) params.stop_token_ids = {7};
  params.logprobs = 2;
  return request;
}

std::vector<Request> workload(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  requests.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) requests.push_back(random_request(random));
  return requests;
}

// The answers of requests that run one after the other, by a loop that knows no engine.
Answers alone(const std::vector<Request>& requests) {
  Answers answers;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const std::vector<int32_t> eos = {kEos};
    for (int sample = 0; sample < request.params.n; ++sample) {
      SequenceSampler sampler(sampler_settings(request.params, eos, *request.params.seed,
                                               static_cast<uint32_t>(sample)),
                              request.prompt_token_ids);
      SamplerScratch scratch;
      std::vector<int32_t> history = request.prompt_token_ids;
      Answer& answer = answers[{r + 1, sample}];
      while (!answer.reason) {
        const SampledToken token = sampler.sample(hash_model_logits(history, kVocab),
                                                  static_cast<int64_t>(history.size()), scratch);
        history.push_back(token.id);
        answer.token_ids.push_back(token.id);
        answer.logprobs.push_back(token.logprobs->logprob);
        if (sampler.is_end_token(token.id)) {
          answer.reason = FinishReason::kStop;
        } else if (static_cast<int64_t>(answer.token_ids.size()) == *request.params.max_tokens) {
          answer.reason = FinishReason::kLength;
        }
      }
    }
  }
  return answers;
}

Answers together(const std::vector<Request>& requests, const RigOptions& setup,
                 int64_t* preempted = nullptr) {
  Rig rig(setup);
  for (const Request& request : requests) rig.add(request);
  Answers answers = rig.run();
  if (preempted) *preempted = rig.preempted;
  return answers;
}

TEST(Engine, AnswersDoNotDependOnTheBatch) {
  const std::vector<Request> requests = workload(24, 1);
  const Answers expected = alone(requests);
  for (const int64_t max_num_seqs : {1, 2, 3, 16, 100}) {
    RigOptions setup;
    setup.limits.max_num_seqs = max_num_seqs;
    EXPECT_EQ(together(requests, setup), expected) << max_num_seqs;
  }
}

TEST(Engine, AnswersDoNotDependOnChunksAndBudget) {
  const std::vector<Request> requests = workload(24, 2);
  const Answers expected = alone(requests);
  for (const int64_t chunk : {1, 7, 64, 0}) {
    for (const int64_t budget : {1, 5, 64, 1000}) {
      RigOptions setup;
      setup.limits.max_chunk = chunk;
      setup.limits.max_num_batched_tokens = budget;
      EXPECT_EQ(together(requests, setup), expected) << chunk << " " << budget;
    }
  }
}

TEST(Engine, AnswersDoNotDependOnPreemptionAndBlockSize) {
  const std::vector<Request> requests = workload(24, 3);
  const Answers expected = alone(requests);
  for (const int64_t block_size : {1, 3, 16}) {
    RigOptions setup;
    setup.block_size = block_size;
    setup.num_blocks = 90 / block_size + 1;
    int64_t preempted = 0;
    EXPECT_EQ(together(requests, setup, &preempted), expected) << block_size;
    EXPECT_GT(preempted, 0) << block_size;
  }
}

TEST(Engine, AnswersDoNotDependOnTheOrderOfArrival) {
  std::vector<Request> requests = workload(12, 4);
  const Answers expected = alone(requests);
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(5);
  for (int round = 0; round < 4; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    Rig rig({});
    std::map<RequestId, RequestId> original;
    for (const size_t i : order) {
      original[rig.add(requests[i])] = i + 1;
      // Some steps between arrivals.
      if (random() % 2) {
        const auto step = rig.engine->step();
        ASSERT_TRUE(step.has_value());
        take(*step, rig.answers);
      }
    }
    Answers renamed;
    for (const auto& [key, answer] : rig.run()) {
      renamed[{original[key.first], key.second}] = answer;
    }
    EXPECT_EQ(renamed, expected);
  }
}

TEST(Engine, SamplesOfOneRequestDifferAndTheFirstIsThatOfN1) {
  Request request;
  request.prompt_token_ids = {3, 4, 5};
  request.params.seed = 11;
  request.params.ignore_eos = true;
  request.params.max_tokens = 20;
  const Answers one = together({request}, {});
  request.params.n = 4;
  const Answers four = together({request}, {});
  ASSERT_EQ(four.size(), 4u);
  EXPECT_EQ(four.at({1, 0}), one.at({1, 0}));
  EXPECT_NE(four.at({1, 0}).token_ids, four.at({1, 1}).token_ids);
  EXPECT_NE(four.at({1, 1}).token_ids, four.at({1, 2}).token_ids);
}

TEST(Engine, ManyRandomWorkloadsKeepTheInvariants) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed + 1000);
    RigOptions setup;
    setup.block_size = 1 + random() % 8;
    setup.num_blocks = (80 + random() % 200) / setup.block_size + 1;
    setup.limits.max_num_batched_tokens = 1 + random() % 70;
    setup.limits.max_num_seqs = 1 + random() % 20;
    setup.limits.max_chunk = random() % 3 ? 0 : 1 + random() % 20;
    const std::vector<Request> requests = workload(10, seed);
    Rig rig(setup);
    size_t next = 0;
    std::set<RequestId> aborted;
    while (next < requests.size() || rig.engine->has_work()) {
      if (next < requests.size() && random() % 2) {
        rig.add(requests[next++]);
      }
      if (random() % 12 == 0 && next > 0) {
        const RequestId id = 1 + random() % next;
        rig.engine->abort(id);
        aborted.insert(id);
      }
      const auto step = rig.engine->step();
      ASSERT_TRUE(step.has_value());
      take(*step, rig.answers);
    }
    rig.run();
    for (const int64_t tokens : rig.runner.step_tokens) {
      EXPECT_LE(tokens, setup.limits.max_num_batched_tokens);
    }
    for (const int64_t sequences : rig.runner.step_sequences) {
      EXPECT_LE(sequences, setup.limits.max_num_seqs);
    }
    for (const auto& [key, answer] : alone(requests)) {
      const Answer& got = rig.answers.at(key);
      if (got.reason == FinishReason::kAbort) {
        EXPECT_TRUE(aborted.contains(key.first));
        ASSERT_LE(got.token_ids.size(), answer.token_ids.size());
        EXPECT_TRUE(
            std::equal(got.token_ids.begin(), got.token_ids.end(), answer.token_ids.begin()));
      } else {
        EXPECT_EQ(got, answer);
      }
    }
  }
}

TEST(Engine, AbortFreesBlocksAtOnceAndIsReported) {
  Rig rig({});
  Request request;
  request.prompt_token_ids.assign(30, 1);
  request.params.temperature = 0;
  request.params.ignore_eos = true;
  const RequestId first = rig.add(request);
  request.params.n = 2;
  const RequestId second = rig.add(request);
  ASSERT_TRUE(rig.engine->step().has_value());
  const int64_t used = 200 - rig.engine->num_free_blocks();
  rig.engine->abort(second);
  EXPECT_LT(200 - rig.engine->num_free_blocks(), used);
  rig.engine->abort(first);
  EXPECT_EQ(rig.engine->num_free_blocks(), 200);
  rig.engine->abort(first);
  rig.engine->abort(99);
  EXPECT_TRUE(rig.engine->has_work());
  const auto step = rig.engine->step();
  ASSERT_TRUE(step.has_value());
  ASSERT_EQ(step->outputs.size(), 3u);
  for (const auto& output : step->outputs) EXPECT_EQ(output.finish_reason, FinishReason::kAbort);
  EXPECT_FALSE(rig.engine->has_work());
}

TEST(Engine, AFailedStepCanBeTriedAgain) {
  const std::vector<Request> requests = workload(6, 9);
  Rig rig({});
  for (const Request& request : requests) rig.add(request);
  std::mt19937 random(3);
  while (rig.engine->has_work()) {
    rig.runner.fail_next = random() % 3 == 0;
    const bool failing = rig.runner.fail_next;
    const auto step = rig.engine->step();
    if (step) {
      take(*step, rig.answers);
    } else {
      EXPECT_TRUE(failing);
      EXPECT_EQ(step.error().message, "the fake runner was told to fail");
    }
  }
  EXPECT_EQ(rig.answers, alone(requests));
}

TEST(Engine, LogitsThatAreNoNumbersAreAnError) {
  const std::vector<Request> requests = workload(2, 9);
  Rig rig({});
  for (const Request& request : requests) rig.add(request);
  rig.runner.nan_logits = true;
  std::string message;
  for (int i = 0; i < 100 && message.empty(); ++i) {
    const auto step = rig.engine->step();
    if (!step) message = step.error().message;
  }
  EXPECT_EQ(
      message,
      "the model's logits are not finite numbers: its weights are damaged, or values overflow "
      "(try --dtype float32)");
  rig.runner.nan_logits = false;
  while (rig.engine->has_work()) {
    const auto step = rig.engine->step();
    ASSERT_TRUE(step) << step.error().message;
    take(*step, rig.answers);
  }
  EXPECT_EQ(rig.answers, alone(requests));
}

TEST(Engine, RefusesWhatCannotRun) {
  RigOptions setup;
  setup.num_blocks = 5;
  Rig rig(setup);
  const auto message = [&](const Request& request) {
    const auto id = rig.engine->add_request(request);
    return id ? std::string("accepted") : id.error().message;
  };
  Request request;
  EXPECT_NE(message(request).find("no tokens"), std::string::npos);
  request.prompt_token_ids = {1, 40};
  EXPECT_EQ(message(request), "token 1 of the prompt is 40, the vocabulary has 0 to 39");
  request.prompt_token_ids = {-1};
  EXPECT_EQ(message(request), "token 0 of the prompt is -1, the vocabulary has 0 to 39");
  request.prompt_token_ids.assign(120, 1);
  EXPECT_NE(message(request).find("120 tokens and the context holds 120"), std::string::npos);
  request.prompt_token_ids.assign(21, 1);
  EXPECT_NE(message(request).find("needs 6 cache blocks of 4 tokens"), std::string::npos)
      << message(request);
  EXPECT_NE(message(request).find("the pool has 5"), std::string::npos);
  request.prompt_token_ids.assign(10, 1);
  request.params.max_tokens = 12;
  EXPECT_NE(message(request).find("10 tokens of prompt, 12 of answer"), std::string::npos);
  request.params.top_p = 1.5;
  EXPECT_EQ(message(request), "top_p is 1.5, expected a number above 0 and at most 1");
  EXPECT_FALSE(rig.engine->has_work());
}

TEST(Engine, FillsThePoolToTheLastSlot) {
  RigOptions setup;
  setup.num_blocks = 5;
  setup.block_size = 4;
  Rig rig(setup);
  Request request;
  request.prompt_token_ids.assign(10, 1);
  request.params.ignore_eos = true;
  request.params.temperature = 0;
  rig.add(request);  // no max_tokens: cut to the pool
  request.params.max_tokens = 11;
  rig.add(request);
  for (const auto& [key, answer] : rig.run()) {
    EXPECT_EQ(answer.token_ids.size(), 11u);
    EXPECT_EQ(answer.reason, FinishReason::kLength);
  }
}

TEST(ResolveMaxLength, ByTable) {
  EngineOptions options;
  options.max_model_len = 100;
  options.block_size = 10;
  options.num_blocks = 20;
  EXPECT_EQ(resolve_max_length(30, std::nullopt, options), 100);
  EXPECT_EQ(resolve_max_length(30, 5, options), 35);
  EXPECT_EQ(resolve_max_length(30, 1000, options), 100);
  EXPECT_EQ(resolve_max_length(30, INT64_MAX, options), 100);
  EXPECT_EQ(resolve_max_length(99, std::nullopt, options), 100);
  EXPECT_FALSE(resolve_max_length(100, 1, options).has_value());
  EXPECT_FALSE(resolve_max_length(0, 1, options).has_value());
  options.num_blocks = 4;
  EXPECT_EQ(resolve_max_length(30, std::nullopt, options), 41);
  EXPECT_EQ(resolve_max_length(40, std::nullopt, options), 41);
  EXPECT_EQ(resolve_max_length(40, 1, options), 41);
  EXPECT_FALSE(resolve_max_length(40, 2, options).has_value());
  EXPECT_FALSE(resolve_max_length(41, std::nullopt, options).has_value());
}

// Text of a token: one letter; the answer stops at "stop", whose beginning is held back.
class LetterSink final : public TextSink {
 public:
  explicit LetterSink(std::string stop) : stop_(std::move(stop)) {}

  bool accept(int32_t token, bool may_stop, std::string& text) override {
    held_ += static_cast<char>('a' + token % 26);
    if (may_stop) {
      if (const size_t at = held_.find(stop_); at != std::string::npos) {
        text += held_.substr(0, at);
        held_.clear();
        return true;
      }
    }
    const size_t keep = std::min(held_.size(), stop_.size() - 1);
    text += held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return false;
  }

  void finish(std::string& text) override { text += std::exchange(held_, {}); }

 private:
  std::string stop_;
  std::string held_;
};

std::string letters(const std::vector<int32_t>& token_ids) {
  std::string text;
  for (const int32_t token : token_ids) text += static_cast<char>('a' + token % 26);
  return text;
}

TEST(Engine, AStopStringEndsTheAnswerBeforeIt) {
  Request request;
  request.prompt_token_ids = {9, 8, 7};
  request.params.seed = 5;
  request.params.ignore_eos = true;
  request.params.max_tokens = 30;
  const std::vector<int32_t> ids = together({request}, {}).at({1, 0}).token_ids;
  const std::string whole = letters(ids);
  const std::string stop = whole.substr(10, 3);
  const size_t at = whole.find(stop);
  request.make_text = [stop] { return std::make_unique<LetterSink>(stop); };
  const Answer answer = together({request}, {}).at({1, 0});
  EXPECT_EQ(answer.reason, FinishReason::kStop);
  EXPECT_EQ(answer.text, whole.substr(0, at));
  EXPECT_EQ(answer.token_ids.size(), at + 3);

  request.make_text = [] { return std::make_unique<LetterSink>("$$$"); };
  const Answer to_the_end = together({request}, {}).at({1, 0});
  EXPECT_EQ(to_the_end.reason, FinishReason::kLength);
  EXPECT_EQ(to_the_end.text, whole);
}

TEST(Engine, MinTokensHoldsOffEveryWayToStop) {
  Request request;
  request.prompt_token_ids = {1, 2};
  request.params.seed = 5;
  request.params.max_tokens = 12;
  request.params.min_tokens = 12;
  for (int32_t token = 0; token < 20; ++token) request.params.stop_token_ids.push_back(token);
  request.make_text = [] { return std::make_unique<LetterSink>("a"); };
  // Token 26 prints "a" too and is no end token; the stop string does not count before the minimum.
  const Answer answer = together({request}, {}).at({1, 0});
  EXPECT_EQ(answer.token_ids.size(), 12u);
  for (size_t i = 0; i + 1 < answer.token_ids.size(); ++i) EXPECT_GE(answer.token_ids[i], 20);
}

TEST(Engine, AnEndTokenIsReportedButHasNoText) {
  Request request;
  request.prompt_token_ids = {1, 2};
  request.params.temperature = 0;
  request.params.logit_bias = {{kEos, 100.0}};
  request.make_text = [] { return std::make_unique<LetterSink>("$"); };
  const Answer answer = together({request}, {}).at({1, 0});
  EXPECT_EQ(answer.token_ids, std::vector<int32_t>{kEos});
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.reason, FinishReason::kStop);
}

}  // namespace
}  // namespace millrace
