#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// NaN compares as the lowest number.
float comparable(float x) { return std::isnan(x) ? kLowest : x; }

// scores[e] of one token.
void score(const RouterArgs& args, const float* logits, float* scores) {
  const int n = args.num_experts;
  if (!args.softmax) {
    for (int e = 0; e < n; ++e) scores[e] = -logits[e];
    args.kernels->exp(scores, scores, n);
    for (int e = 0; e < n; ++e) scores[e] = 1.0f / (1.0f + scores[e]);
    return;
  }
  float largest = kLowest;
  for (int e = 0; e < n; ++e) largest = std::max(largest, comparable(logits[e]));
  for (int e = 0; e < n; ++e) scores[e] = logits[e] - largest;
  args.kernels->exp(scores, scores, n);
  const float sum = args.kernels->sum(scores, n);
  for (int e = 0; e < n; ++e) scores[e] = scores[e] / sum;
}

// Orders the first k of n ids before the rest: the larger value first, then the lower id. A heap of
// the k best so far: on most ids it costs one comparison.
void choose_best(const float* values, int32_t* ids, int64_t k, int64_t n) {
  std::partial_sort(ids, ids + k, ids + n, [values](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
}

float sum_of_two_best(const float* values, int n) {
  float first = kLowest;
  float second = kLowest;
  for (int i = 0; i < n; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return n == 1 ? first : first + second;
}

struct Scratch {
  float* scores;   // [experts]
  float* choice;   // [experts], comparable
  float* groups;   // [groups], comparable
  int32_t* ids;    // [experts]: of groups or experts, as they are chosen among
  uint8_t* stays;  // [groups]
};

// Writes the experts that may be chosen to at.ids, in ascending order; their number.
int64_t list_candidates(const RouterArgs& args, const Scratch& at) {
  const int size = args.num_experts / args.num_groups;
  std::fill_n(at.stays, args.num_groups, uint8_t{1});
  if (args.topk_groups < args.num_groups) {
    for (int g = 0; g < args.num_groups; ++g) {
      // A sum of infinities may be NaN.
      at.groups[g] = comparable(sum_of_two_best(at.choice + g * size, size));
      at.ids[g] = g;
      at.stays[g] = 0;
    }
    choose_best(at.groups, at.ids, args.topk_groups, args.num_groups);
    for (int i = 0; i < args.topk_groups; ++i) at.stays[at.ids[i]] = 1;
  }
  int64_t count = 0;
  for (int e = 0; e < args.num_experts; ++e) {
    at.ids[count] = e;
    count += at.stays[e / size];
  }
  return count;
}

void route_token(const RouterArgs& args, int64_t token, const Scratch& at) {
  const int n = args.num_experts;
  const int k = args.experts_per_token;
  score(args, args.logits + token * n, at.scores);
  for (int e = 0; e < n; ++e) {
    const float bias = args.correction_bias != nullptr ? args.correction_bias[e] : 0.0f;
    at.choice[e] = comparable(at.scores[e] + bias);
  }
  int32_t* experts = args.experts + token * k;
  float* weights = args.weights + token * k;
  choose_best(at.choice, at.ids, k, list_candidates(args, at));
  std::copy(at.ids, at.ids + k, experts);
  std::sort(experts, experts + k);
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) {
    weights[i] = at.scores[experts[i]];
    sum = sum + weights[i];
  }
  for (int i = 0; i < k; ++i) {
    if (args.normalise) weights[i] = weights[i] / (sum + args.epsilon);
    weights[i] = weights[i] * args.scale;
  }
}

}  // namespace

int64_t router_scratch_bytes(int num_experts, int num_groups) {
  return (2 * int64_t{num_experts} + num_groups) * int64_t{sizeof(float)} +
         num_experts * int64_t{sizeof(int32_t)} + num_groups;
}

void route(const RouterArgs& args, int64_t token_begin, int64_t token_end, std::byte* scratch) {
  Scratch at{};
  at.scores = reinterpret_cast<float*>(scratch);
  at.choice = at.scores + args.num_experts;
  at.groups = at.choice + args.num_experts;
  at.ids = reinterpret_cast<int32_t*>(at.groups + args.num_groups);
  at.stays = reinterpret_cast<uint8_t*>(at.ids + args.num_experts);
  for (int64_t token = token_begin; token < token_end; ++token) route_token(args, token, at);
}

}  // namespace millrace
