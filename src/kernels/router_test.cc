// The router against a plain form of its own, on random logits, ties and NaN.
#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/math.h"
#include "kernels/reference_ops.h"

namespace millrace {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

// Orders by (value descending, id ascending), NaN last.
std::vector<int32_t> ranked(const std::vector<float>& values) {
  std::vector<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto number = [&](int32_t id) {
    const float value = values[static_cast<size_t>(id)];
    return std::isnan(value) ? -INFINITY : value;
  };
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return number(a) > number(b); });
  return ids;
}

Routed expected_of(const RouterArgs& args, const float* logits) {
  const auto n = static_cast<size_t>(args.num_experts);
  std::vector<float> scores(n);
  if (args.softmax) {
    const float largest = *std::max_element(logits, logits + n);
    float slots[16] = {};
    for (size_t e = 0; e < n; ++e) {
      scores[e] = exp_f32(logits[e] - largest);
      slots[e % 16] += scores[e];
    }
    for (float& s : scores) s /= reference_tree16(slots);
  } else {
    for (size_t e = 0; e < n; ++e) scores[e] = 1.0f / (1.0f + exp_f32(-logits[e]));
  }
  std::vector<float> choice = scores;
  for (size_t e = 0; e < n && args.correction_bias != nullptr; ++e) {
    choice[e] += args.correction_bias[e];
  }
  const size_t size = n / static_cast<size_t>(args.num_groups);
  std::vector<float> groups;
  for (size_t g = 0; g < n / size; ++g) {
    std::vector<float> members(choice.begin() + static_cast<int64_t>(g * size),
                               choice.begin() + static_cast<int64_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    groups.push_back(size == 1 ? members[0] : members[0] + members[1]);
  }
  std::vector<int32_t> allowed = ranked(groups);
  allowed.resize(static_cast<size_t>(args.topk_groups));
  Routed routed;
  for (const int32_t e : ranked(choice)) {
    const auto group = static_cast<int32_t>(static_cast<size_t>(e) / size);
    if (std::find(allowed.begin(), allowed.end(), group) == allowed.end()) continue;
    if (routed.experts.size() < static_cast<size_t>(args.experts_per_token)) {
      routed.experts.push_back(e);
    }
  }
  std::sort(routed.experts.begin(), routed.experts.end());
  float sum = 0;
  for (const int32_t e : routed.experts) sum += scores[static_cast<size_t>(e)];
  for (const int32_t e : routed.experts) {
    const float s = scores[static_cast<size_t>(e)];
    routed.weights.push_back((args.normalise ? s / (sum + args.epsilon) : s) * args.scale);
  }
  return routed;
}

class RouterTest : public testing::TestWithParam<Isa> {};

TEST_P(RouterTest, ChoosesAndWeighsAsThePlainForm) {
  struct Shape {
    int experts, groups, topk_groups, k;
  };
  for (const Shape shape : {Shape{8, 1, 1, 2},
                            {16, 4, 2, 5},
                            {256, 8, 4, 8},
                            {160, 1, 1, 8},
                            {6, 6, 3, 3},
                            {4, 2, 1, 2},
                            {1, 1, 1, 1}}) {
    for (const bool softmax : {false, true}) {
      for (const bool ties : {false, true}) {
        constexpr int64_t kTokens = 5;
        std::mt19937 generator(static_cast<uint32_t>(shape.experts));
        std::normal_distribution<float> normal;
        std::vector<float> logits(static_cast<size_t>(kTokens * shape.experts));
        for (float& x : logits) x = ties ? std::nearbyint(normal(generator)) : normal(generator);
        std::vector<float> bias(static_cast<size_t>(shape.experts));
        for (float& x : bias) x = ties ? 0.0f : 0.1f * normal(generator);
        std::vector<int32_t> experts(static_cast<size_t>(kTokens * shape.k));
        std::vector<float> weights(experts.size());
        const RouterArgs args{.kernels = &row_kernels(GetParam()),
                              .logits = logits.data(),
                              .num_experts = shape.experts,
                              .softmax = softmax,
                              .correction_bias = softmax ? nullptr : bias.data(),
                              .num_groups = shape.groups,
                              .topk_groups = shape.topk_groups,
                              .experts_per_token = shape.k,
                              .normalise = !ties,
                              .epsilon = softmax ? 0.0f : 1e-20f,
                              .scale = 2.5f,
                              .experts = experts.data(),
                              .weights = weights.data()};
        std::vector<std::byte> scratch(
            static_cast<size_t>(router_scratch_bytes(shape.experts, shape.groups)));
        route(args, 0, 2, scratch.data());
        route(args, 2, kTokens, scratch.data());
        for (int64_t t = 0; t < kTokens; ++t) {
          const Routed expected = expected_of(args, logits.data() + t * shape.experts);
          const auto at = static_cast<size_t>(t * shape.k);
          for (size_t i = 0; i < static_cast<size_t>(shape.k); ++i) {
            EXPECT_EQ(experts[at + i], expected.experts[i]) << shape.experts << " token " << t;
            EXPECT_EQ(weights[at + i], expected.weights[i]) << shape.experts << " token " << t;
          }
        }
      }
    }
  }
}

TEST_P(RouterTest, NanIsNeverPreferred) {
  const std::vector<float> logits{NAN, 1.0f, -5.0f, NAN, 0.5f};
  std::vector<int32_t> experts(3);
  std::vector<float> weights(3);
  std::vector<std::byte> scratch(static_cast<size_t>(router_scratch_bytes(5, 1)));
  route({.kernels = &row_kernels(GetParam()),
         .logits = logits.data(),
         .num_experts = 5,
         .experts_per_token = 3,
         .experts = experts.data(),
         .weights = weights.data()},
        0, 1, scratch.data());
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 2, 4}));
}

INSTANTIATE_TEST_SUITE_P(Isas, RouterTest, testing::ValuesIn(available_isas(detect_cpu_features())),
                         [](const auto& param) { return std::string(name_of(param.param)); });

}  // namespace
}  // namespace millrace
