#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// NaN compares as the lowest number.
float comparable(float x) { return std::isnan(x) ? kLowest : x; }

float tree16(const float* slots) {
  float level[16];
  std::copy(slots, slots + 16, level);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) level[i] = level[2 * i] + level[2 * i + 1];
  }
  return level[0];
}

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
  float slots[16] = {};
  for (int e = 0; e < n; ++e) slots[e % 16] = slots[e % 16] + scores[e];
  const float sum = tree16(slots);
  for (int e = 0; e < n; ++e) scores[e] = scores[e] / sum;
}

// The index of the best value that is not yet taken; taken ones are marked.
int take_best(const float* values, int n, uint8_t* taken) {
  int best = -1;
  for (int i = 0; i < n; ++i) {
    if (taken[i] != 0) continue;
    if (best < 0 || comparable(values[i]) > comparable(values[best])) best = i;
  }
  taken[best] = 1;
  return best;
}

float sum_of_two_best(const float* values, int n) {
  float first = kLowest;
  float second = kLowest;
  for (int i = 0; i < n; ++i) {
    const float value = comparable(values[i]);
    if (value > first) {
      second = first;
      first = value;
    } else if (value > second) {
      second = value;
    }
  }
  return n == 1 ? first : first + second;
}

struct Scratch {
  float* scores;
  float* choice;
  float* groups;
  uint8_t* taken;
  uint8_t* group_taken;
};

// Marks the experts of groups that are out as taken.
void leave_out_groups(const RouterArgs& args, const Scratch& at) {
  if (args.topk_groups >= args.num_groups) return;
  const int size = args.num_experts / args.num_groups;
  for (int g = 0; g < args.num_groups; ++g) {
    at.groups[g] = sum_of_two_best(at.choice + g * size, size);
    at.group_taken[g] = 0;
  }
  for (int i = 0; i < args.topk_groups; ++i) take_best(at.groups, args.num_groups, at.group_taken);
  for (int e = 0; e < args.num_experts; ++e) at.taken[e] = at.group_taken[e / size] == 0 ? 1 : 0;
}

void route_token(const RouterArgs& args, int64_t token, const Scratch& at) {
  const int n = args.num_experts;
  const int k = args.experts_per_token;
  score(args, args.logits + token * n, at.scores);
  for (int e = 0; e < n; ++e) {
    const float bias = args.correction_bias != nullptr ? args.correction_bias[e] : 0.0f;
    at.choice[e] = at.scores[e] + bias;
    at.taken[e] = 0;
  }
  leave_out_groups(args, at);
  int32_t* experts = args.experts + token * k;
  float* weights = args.weights + token * k;
  for (int i = 0; i < k; ++i) experts[i] = take_best(at.choice, n, at.taken);
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
  return (2 * int64_t{num_experts} + num_groups) * int64_t{sizeof(float)} + num_experts +
         num_groups;
}

void route(const RouterArgs& args, int64_t token_begin, int64_t token_end, std::byte* scratch) {
  Scratch at{};
  at.scores = reinterpret_cast<float*>(scratch);
  at.choice = at.scores + args.num_experts;
  at.groups = at.choice + args.num_experts;
  at.taken = reinterpret_cast<uint8_t*>(at.groups + args.num_groups);
  at.group_taken = at.taken + args.num_experts;
  for (int64_t token = token_begin; token < token_end; ++token) route_token(args, token, at);
}

}  // namespace millrace
