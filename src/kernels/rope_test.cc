#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace {
namespace {

struct FrequencyCase {
  const char* name;
  RopeParameters parameters;
  size_t step;                   // every step-th frequency is given
  std::vector<double> expected;  // from the formulas in double precision
};

std::vector<FrequencyCase> frequency_cases() {
  using enum RopeScaling;
  return {
      {"none",
       {.rotary_dim = 16},
       1,
       {1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}},
      {"linear",
       {.scaling = kLinear, .rotary_dim = 16, .factor = 4},
       1,
       {0.25, 0.0790569415, 0.025, 0.00790569415, 0.0025, 0.000790569415, 0.00025, 7.90569415e-05}},
      {"theta 100000",
       {.theta = 1e5, .rotary_dim = 64},
       5,
       {1, 0.16548171, 0.0273841963, 0.00453158364, 0.000749894209, 0.000124093776,
        2.05352503e-05}},
      {"llama3, short context",
       {.scaling = kLlama3,
        .theta = 500000,
        .rotary_dim = 32,
        .factor = 8,
        .original_max_position = 64},
       1,
       {1, 0.440366603, 0.0794030092, 0.0106746375, 0.00470075387, 0.00207005501, 0.000911583092,
        0.000401430749, 0.000176776695, 7.78465527e-05, 3.4281022e-05, 1.50962172e-05,
        6.64786987e-06, 2.92749987e-06, 1.28917317e-06, 5.6770881e-07}},
      {"llama3 as published",
       {.scaling = kLlama3,
        .theta = 500000,
        .rotary_dim = 128,
        .factor = 8,
        .original_max_position = 8192},
       9,
       {1, 0.15797281, 0.0249554087, 0.00394227603, 7.78465527e-05, 1.22976387e-05, 1.94269254e-06,
        3.06892599e-07}},
      {"yarn",
       {.scaling = kYarn, .rotary_dim = 64, .factor = 40, .original_max_position = 4096},
       3,
       {1, 0.421696503, 0.177827941, 0.0749894209, 0.0268793601, 0.00833450895, 0.0022493653,
        0.000414990398, 2.5e-05, 1.05424126e-05, 4.44569853e-06}},
      {"yarn without rounding of the ramp",
       {.scaling = kYarn,
        .rotary_dim = 16,
        .factor = 4,
        .original_max_position = 64,
        .truncate = false},
       1,
       {1, 0.19858352, 0.0255952459, 0.00790569415, 0.0025, 0.000790569415, 0.00025,
        7.90569415e-05}},
      {"divisors",
       {.rotary_dim = 8, .freq_divisors = {1, 2, 4, 8}},
       1,
       {1, 0.05, 0.0025, 0.000125}},
  };
}

TEST(Rope, FrequenciesByTable) {
  for (const FrequencyCase& c : frequency_cases()) {
    const auto actual = rope_inverse_frequencies(c.parameters);
    ASSERT_EQ(actual.size(), static_cast<size_t>(c.parameters.rotary_dim / 2)) << c.name;
    for (size_t i = 0; i < c.expected.size(); ++i) {
      EXPECT_NEAR(actual[i * c.step] / c.expected[i], 1.0, 4e-7) << c.name << " " << i * c.step;
    }
  }
}

TEST(Rope, CosAndSinOfTheFloatAngle) {
  const std::vector<float> inv_freq{1.0f, 0.3162278f, 0.001f};
  const std::vector<int32_t> positions{0, 1, 4097, 131071, 1 << 20};
  std::vector<float> cos(15);
  std::vector<float> sin(15);
  rope_cos_sin(inv_freq, 1.5f, positions, cos.data(), sin.data());
  for (size_t p = 0; p < positions.size(); ++p) {
    for (size_t i = 0; i < 3; ++i) {
      const double angle = static_cast<float>(positions[p]) * inv_freq[i];
      EXPECT_NEAR(cos[p * 3 + i], 1.5 * std::cos(angle), 1.5e-7);
      EXPECT_NEAR(sin[p * 3 + i], 1.5 * std::sin(angle), 1.5e-7);
    }
  }
  EXPECT_EQ(cos[0], 1.5f);
  EXPECT_EQ(sin[0], 0.0f);
}

}  // namespace
}  // namespace millrace
