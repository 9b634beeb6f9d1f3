#include "kernels/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/row_kernels.h"

namespace millrace {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Distance in units of the last place of the float nearest to `expected`.
double ulps(float actual, double expected) {
  const float nearest = std::fabs(static_cast<float>(expected));
  const double ulp = static_cast<double>(std::nextafter(nearest, kInf)) - nearest;
  return std::fabs(actual - expected) / ulp;
}

// Floats of every exponent and both signs, `per_exponent` mantissas each.
std::vector<float> all_exponents(uint32_t per_exponent) {
  std::vector<float> values;
  uint32_t noise = 12345;
  for (uint32_t top = 0; top < 512; ++top) {
    for (uint32_t i = 0; i < per_exponent; ++i) {
      noise = noise * 1664525u + 1013904223u;
      const uint32_t mantissa = i == 0 ? 0 : i == 1 ? 0x7fffff : noise >> 9;
      values.push_back(std::bit_cast<float>(top << 23 | mantissa));
    }
  }
  return values;
}

TEST(Math, ExpIsWithinAboutOneUlp) {
  double worst = 0;
  for (int64_t i = -873000; i <= 887228; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    if (x < -87.3f) continue;
    worst = std::max(worst, ulps(exp_f32(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 1.1);
}

TEST(Math, ExpAtItsEdges) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-88.0f), 0.0f);
  EXPECT_GT(exp_f32(-87.3f), std::numeric_limits<float>::min());
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(exp_f32(89.0f), kInf);
  EXPECT_LT(exp_f32(88.72f), kInf);
  EXPECT_TRUE(std::isnan(exp_f32(std::nanf(""))));
  EXPECT_TRUE(std::isnan(exp_f32(-std::nanf(""))));
}

TEST(Math, VectorExpHasTheScalarBits) {
  std::vector<float> values = all_exponents(200);
  for (int i = -100000; i <= 100000; ++i) values.push_back(static_cast<float>(i) * 1e-3f);
  std::vector<float> out(values.size());
  for (const Isa isa : available_isas(detect_cpu_features())) {
    row_kernels(isa).exp(values.data(), out.data(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = exp_f32(values[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out[i])) << row_kernels(isa).name << " " << values[i];
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected))
          << row_kernels(isa).name << " " << values[i];
    }
  }
}

TEST(Math, SiluIsXTimesSigmoid) {
  for (float x = -80.0f; x < 80.0f; x += 0.37f) {
    EXPECT_LT(ulps(silu(x), x / (1.0 + std::exp(-static_cast<double>(x)))), 3.0) << x;
  }
}

TEST(Math, DoublesAgreeWithLibm) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(log_f64(x), std::log(x), 4e-16 * std::fabs(std::log(x)) + 1e-17) << x;
  }
  for (double x = -690; x < 700; x += 0.7313) {
    EXPECT_NEAR(exp_f64(x) / std::exp(x), 1.0, 1e-15) << x;
  }
  EXPECT_EQ(log_f64(1.0), 0.0);
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_TRUE(std::isinf(log_f64(0.0)));
  EXPECT_TRUE(std::isnan(log_f64(-1.0)));
  EXPECT_TRUE(std::isnan(exp_f64(std::nan(""))));
  for (const double theta : {10000.0, 100000.0, 500000.0, 1e6}) {
    for (double e = 0; e < 1; e += 1.0 / 64) {
      EXPECT_NEAR(pow_f64(theta, e) / std::pow(theta, e), 1.0, 5e-15);
    }
  }
}

TEST(Math, SineAndCosineHoldForLongContexts) {
  double worst = 0;
  for (int64_t i = 0; i < 400000; ++i) {
    const double x = static_cast<double>(i * 7919 % 2000003) * 0.9173 - 1000.0;
    double s = 0;
    double c = 0;
    sincos_f64(x, s, c);
    worst = std::max(worst, std::fabs(s - std::sin(x)));
    worst = std::max(worst, std::fabs(c - std::cos(x)));
  }
  EXPECT_LT(worst, 1e-15);
  double s = 1;
  double c = 1;
  sincos_f64(std::numeric_limits<double>::infinity(), s, c);
  EXPECT_TRUE(std::isnan(s) && std::isnan(c));
  sincos_f64(1e300, s, c);
  EXPECT_LE(std::fabs(s), 1.0);
}

}  // namespace
}  // namespace millrace
