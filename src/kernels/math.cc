#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/math_constants.h"

namespace millrace {
namespace {

constexpr double kLn2High = 0x1.62e42fefa39efp-1;
constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;

}  // namespace

float exp_f32(float x) {
  const float shifted = std::fma(x, kExpLog2E, kExpMagic);
  const float n = shifted - kExpMagic;
  float r = std::fma(n, -kExpLn2High, x);
  r = std::fma(n, -kExpLn2Low, r);
  float q = std::fma(kExpC6, r, kExpC5);
  q = std::fma(q, r, kExpC4);
  q = std::fma(q, r, kExpC3);
  q = std::fma(q, r, kExpC2);
  const float p = std::fma(r * r, q, r) + 1.0f;
  // The low bits of `shifted` are n: shifted left by 23 they add n to p's exponent.
  const uint32_t scaled = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  if (!(x <= kExpMax)) return x + std::numeric_limits<float>::infinity();
  if (x < kExpMin) return 0.0f;
  return std::bit_cast<float>(scaled);
}

float silu(float x) { return x / (1.0f + exp_f32(-x)); }

float log_f32(float x) { return static_cast<float>(log_f64(x)); }

double exp_f64(double x) {
  if (std::isnan(x)) return x;
  if (x < -700.0) return 0.0;
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  const double n = std::nearbyint(x * 0x1.71547652b82fep+0);
  double r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  // Taylor series, |r| <= 0.347: the first term left out is below 4e-18.
  double sum = 0.0;
  for (int k = 13; k >= 1; --k) sum = (sum + 1.0) * r / k;
  // -1010 <= n <= 1023: a normal number.
  const auto exponent = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023);
  return (sum + 1.0) * std::bit_cast<double>(exponent << 52);
}

double log_f64(double x) {
  if (std::isnan(x) || x < 0.0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (mantissa > 0x1.6a09e667f3bcdp+0) {
    mantissa *= 0.5;
    ++exponent;
  }
  // ln(m) = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172: terms to s^25.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  double tail = 0.0;
  for (int k = 25; k >= 3; k -= 2) tail = (tail + 1.0 / k) * z;
  const double n = static_cast<double>(exponent);
  return std::fma(n, kLn2High, std::fma(n, kLn2Low, 2.0 * std::fma(s, tail, s)));
}

double pow_f64(double a, double b) { return exp_f64(b * log_f64(a)); }

void sincos_f64(double x, double& sine, double& cosine) {
  if (!(std::fabs(x) <= std::numeric_limits<double>::max())) {
    sine = cosine = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const double n = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  double r = std::fma(n, -kHalfPiHigh, x);
  r = std::fma(n, -kHalfPiLow, r);
  if (std::fabs(r) > 1.0) r = 0.0;  // beyond 2^50 the reduction has no digits left
  // Taylor series, |r| <= 0.786: the first terms left out are below 1e-19 and 3e-18.
  const double z = r * r;
  double s = 0.0;
  double c = 0.0;
  for (int k = 8; k >= 1; --k) {
    s = (s + 1.0) * -z / ((2 * k) * (2 * k + 1));
    c = (c + 1.0) * -z / ((2 * k - 1) * (2 * k));
  }
  s = std::fma(r, s, r);
  c = c + 1.0;
  // n mod 4, exact for every double.
  const double quarter = n - 4.0 * std::nearbyint(n * 0.25 - 0.25);
  const int quadrant = static_cast<int>(quarter) & 3;
  const double a = (quadrant & 1) != 0 ? c : s;
  const double b = (quadrant & 1) != 0 ? s : c;
  sine = (quadrant & 2) != 0 ? -a : a;
  cosine = quadrant == 1 || quadrant == 2 ? -b : b;
}

}  // namespace millrace
