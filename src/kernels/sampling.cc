#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "kernels/math.h"
#include "kernels/softmax_weights.h"

namespace millrace {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kLanes = 16;
// Logits of one entry of the coarse view that partial selection starts from.
constexpr size_t kChunk = 32;

// Largest of `values`, NaN counting as -inf. Sixteen lanes, so that the compiler makes vectors of
// them; a maximum does not depend on the order.
float max_value(std::span<const float> values) {
  std::array<float, kLanes> lane;
  lane.fill(kMinusInf);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lane[j] = values[i + j] > lane[j] ? values[i + j] : lane[j];
  }
  for (; i < values.size(); ++i) lane[0] = values[i] > lane[0] ? values[i] : lane[0];
  return *std::max_element(lane.begin(), lane.end());
}

float number(float x) { return std::isnan(x) ? kMinusInf : x; }

// Descending by logit, ascending by id: the order of all choices.
auto better(std::span<const float> logits) {
  return [logits](int32_t a, int32_t b) {
    const float x = number(logits[a]);
    const float y = number(logits[b]);
    return x != y ? x > y : a < b;
  };
}

// Ids of the `count` largest logits among those >= least, in no order; fewer if there are not so
// many. The maxima of runs of kChunk logits give a bound that at least `count` logits reach, so
// that only few have to be ordered.
void select_largest(std::span<const float> logits, size_t count, float least,
                    SamplingScratch& scratch) {
  const size_t num_chunks = (logits.size() + kChunk - 1) / kChunk;
  float bound = least;
  if (count < num_chunks) {
    scratch.chunk_max.resize(num_chunks);
    for (size_t c = 0; c < num_chunks; ++c) {
      const size_t begin = c * kChunk;
      scratch.chunk_max[c] =
          max_value(logits.subspan(begin, std::min(kChunk, logits.size() - begin)));
    }
    const auto kth = scratch.chunk_max.begin() + static_cast<ptrdiff_t>(count) - 1;
    std::nth_element(scratch.chunk_max.begin(), kth, scratch.chunk_max.end(),
                     std::greater<float>());
    bound = std::max(bound, *kth);
  }
  auto& ids = scratch.candidates;
  ids.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (number(logits[i]) >= bound) ids.push_back(static_cast<int32_t>(i));
  }
  if (ids.size() <= count) return;
  std::nth_element(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(),
                   better(logits));
  ids.resize(count);
}

// Logits relative to the largest, over the temperature: at most 0, NaN becomes -inf.
struct Scaled {
  std::span<const float> logits;
  float max;
  float inverse_temperature;

  float operator()(size_t i) const {
    const float z = (logits[i] - max) * inverse_temperature;
    return z <= 0 ? z : kMinusInf;
  }
};

// exp(z) in units of 2^-40, cut to a whole number: sums of these are exact, so that the mass of a
// set of tokens does not depend on the order in which it is added up.
uint64_t in_units(float weight) { return static_cast<uint64_t>(weight * 0x1p40f); }

// Masses of tokens of one row.
class Masses {
 public:
  // Computes exp(z) of the whole row into scratch.weights.
  static Masses of_row(const Scaled& z, SamplingScratch& scratch) {
    scratch.weights.resize(z.logits.size());
    softmax_weights(scratch.isa)(z.logits.data(), static_cast<int64_t>(z.logits.size()), z.max,
                                 z.inverse_temperature, scratch.weights.data());
    return Masses(z, scratch.weights.data());
  }
  // Computes exp(z) when it is asked for: better for few candidates.
  static Masses on_demand(const Scaled& z) { return Masses(z, nullptr); }

  uint64_t of(int32_t id) const {
    return in_units(weights_ ? weights_[id] : exp_f32(z_(static_cast<size_t>(id))));
  }
  uint64_t of(std::span<const int32_t> ids) const {
    uint64_t mass = 0;
    for (const int32_t id : ids) mass += of(id);
    return mass;
  }
  // Of the tokens with z_i >= least; after of_row only.
  uint64_t total(float least) const {
    uint64_t mass = 0;
    for (size_t i = 0; i < z_.logits.size(); ++i) {
      if (z_(i) >= least) mass += in_units(weights_[i]);
    }
    return mass;
  }

 private:
  Masses(const Scaled& z, const float* weights) : z_(z), weights_(weights) {}

  const Scaled& z_;
  const float* weights_;
};

// Cuts the candidates to the fewest best ones whose mass reaches `target` (all, if it is never
// reached). Halves the list at its median until the cut is found: linear time, no full order.
void cut_to_mass(std::span<const float> logits, const Masses& masses, uint64_t target,
                 std::vector<int32_t>& candidates) {
  size_t begin = 0;  // everything before is kept
  size_t end = candidates.size();
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    const auto first = candidates.begin();
    std::nth_element(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(middle),
                     first + static_cast<ptrdiff_t>(end), better(logits));
    // The cut comes right after the candidate that reaches the target.
    const uint64_t before = masses.of(std::span(candidates).subspan(begin, middle - begin));
    if (before >= target) {
      end = middle;
      continue;
    }
    const uint64_t through = before + masses.of(candidates[middle]);
    begin = middle + 1;
    if (through >= target) break;
    target -= through;
  }
  candidates.resize(begin);
}

// The mass that top-p asks for.
uint64_t share_of(uint64_t mass, float top_p) {
  return static_cast<uint64_t>(std::ceil(static_cast<double>(mass) * static_cast<double>(top_p)));
}

// Top-p over all tokens that pass min-p. Mostly few tokens hold the mass: those are tried first.
void select_mass(const Scaled& z, float top_p, float least, float least_logit,
                 SamplingScratch& scratch) {
  constexpr size_t kFirstTry = 256;
  const Masses masses = Masses::of_row(z, scratch);
  const uint64_t target = share_of(masses.total(least), top_p);
  select_largest(z.logits, kFirstTry, least_logit, scratch);
  if (masses.of(scratch.candidates) < target) {
    select_largest(z.logits, z.logits.size(), least_logit, scratch);
  }
  cut_to_mass(z.logits, masses, target, scratch.candidates);
}

// The Gumbel race: keeps the best of the tokens offered.
class Race {
 public:
  Race(const Scaled& z, const RandomKey& key) : z_(z), stream_(key) {}

  void offer(int32_t id) {
    const float z = z_(static_cast<size_t>(id));
    const uint64_t word = stream_.word(static_cast<uint64_t>(id));
    // The noise is at most (leading zeros + 1) ln 2: most tokens are out before any logarithm.
    const int zeros = std::countl_zero(static_cast<uint32_t>(word >> 32));
    if (!(z + static_cast<float>(zeros + 1) * 0.6932f + 1e-3f >= best_score_)) return;
    const float score = z + gumbel_noise(word);
    if (score > best_score_ || (score == best_score_ && id < best_)) {
      best_score_ = score;
      best_ = id;
    }
  }

  int32_t winner() const { return best_; }

 private:
  const Scaled& z_;
  RandomStream stream_;
  float best_score_ = kMinusInf;
  int32_t best_ = std::numeric_limits<int32_t>::max();
};

}  // namespace

RandomStream::RandomStream(const RandomKey& key) {
  uint64_t state = mix(key.seed + kGolden);
  state = mix(state ^ ((static_cast<uint64_t>(key.use) << 32) | key.sample_index));
  start_ = mix(state + static_cast<uint64_t>(key.position) * kGolden);
}

float gumbel_noise(uint64_t word) {
  const double u = (static_cast<double>(static_cast<uint32_t>(word >> 32)) + 0.5) * 0x1p-32;
  float exponential;
  if (u < 0x1p-6) {
    // Near 0, -log(1 - u) by its series: the noise of the likeliest winners keeps its precision.
    const float x = static_cast<float>(u);
    float series = 0.25f;
    series = std::fma(series, x, 1.0f / 3.0f);
    series = std::fma(series, x, 0.5f);
    series = std::fma(series, x, 1.0f);
    exponential = x * series;
  } else {
    exponential = -log_f32(static_cast<float>(1.0 - u));
  }
  return -log_f32(exponential);
}

int32_t argmax(std::span<const float> logits) {
  MR_CHECK(!logits.empty());
  // Each run's maximum is compared as a whole; the id is looked for in the best run only.
  constexpr size_t kRun = 512;
  float best = kMinusInf;
  size_t best_run = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kRun) {
    const float m = max_value(logits.subspan(begin, std::min(kRun, logits.size() - begin)));
    if (m > best) {
      best = m;
      best_run = begin;
    }
  }
  if (best == kMinusInf) return 0;
  for (size_t i = best_run; i < logits.size(); ++i) {
    if (logits[i] == best) return static_cast<int32_t>(i);
  }
  return 0;
}

void apply_logit_bias(std::span<float> logits, std::span<const LogitBias> biases) {
  for (const LogitBias& entry : biases) {
    if (entry.token < 0 || static_cast<size_t>(entry.token) >= logits.size()) continue;
    logits[entry.token] += entry.bias;
  }
}

void apply_penalties(std::span<float> logits, std::span<const TokenCount> counts,
                     const PenaltySettings& penalties) {
  for (const TokenCount& entry : counts) {
    if (entry.token < 0 || static_cast<size_t>(entry.token) >= logits.size()) continue;
    float x = logits[entry.token];
    x = x > 0 ? x / penalties.repetition : x * penalties.repetition;
    if (entry.num_generated > 0) {
      x = std::fma(-penalties.frequency, static_cast<float>(entry.num_generated), x);
      x -= penalties.presence;
    }
    logits[entry.token] = x;
  }
}

int32_t draw_token(std::span<const float> logits, const DrawSettings& settings,
                   const RandomKey& key, SamplingScratch& scratch) {
  const int32_t best = argmax(logits);
  const float max = logits[best];
  if (settings.temperature < kGreedyTemperature || !std::isfinite(max)) return best;

  const Scaled z{logits, max, 1.0f / settings.temperature};
  const float least = settings.min_p > 0 ? log_f32(settings.min_p) : kMinusInf;
  // The same cut in logits: exact enough to gather candidates, whose z is then compared.
  const float least_logit =
      settings.min_p > 0 ? max + 1.001f * least * settings.temperature : kMinusInf;
  const size_t vocab = logits.size();
  const bool top_k = settings.top_k > 0 && static_cast<size_t>(settings.top_k) < vocab;
  const bool top_p = settings.top_p < 1;

  Race race(z, key);
  race.offer(best);
  if (!top_k && !top_p) {
    for (size_t i = 0; i < vocab; ++i) {
      if (z(i) >= least) race.offer(static_cast<int32_t>(i));
    }
    return race.winner();
  }
  if (top_k) {
    select_largest(logits, static_cast<size_t>(settings.top_k), least_logit, scratch);
    std::erase_if(scratch.candidates,
                  [&](int32_t id) { return !(z(static_cast<size_t>(id)) >= least); });
    if (top_p) {
      const Masses masses = Masses::on_demand(z);
      const uint64_t target = share_of(masses.of(scratch.candidates), settings.top_p);
      cut_to_mass(logits, masses, target, scratch.candidates);
    }
  } else {
    select_mass(z, settings.top_p, least, least_logit, scratch);
  }
  for (const int32_t id : scratch.candidates) {
    if (z(static_cast<size_t>(id)) >= least) race.offer(id);
  }
  return race.winner();
}

TokenLogprobs compute_logprobs(std::span<const float> logits, int32_t token, int num_top,
                               SamplingScratch& scratch) {
  const float max = logits[argmax(logits)];
  if (!std::isfinite(max)) return {};
  const Scaled z{logits, max, 1.0f};
  const float mass = static_cast<float>(Masses::of_row(z, scratch).total(kMinusInf)) * 0x1p-40f;
  const float log_sum = log_f32(mass);
  TokenLogprobs out;
  out.logprob = z(static_cast<size_t>(token)) - log_sum;
  if (num_top > 0) {
    select_largest(logits, static_cast<size_t>(num_top), kMinusInf, scratch);
    std::sort(scratch.candidates.begin(), scratch.candidates.end(), better(logits));
    for (const int32_t id : scratch.candidates) {
      out.top.emplace_back(id, z(static_cast<size_t>(id)) - log_sum);
    }
  }
  return out;
}

}  // namespace millrace
