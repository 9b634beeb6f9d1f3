// Our own elementary functions: the same bits on every machine and in every vector width.
//
// Made of fma, multiply, add, divide and bit operations only (docs/numerics.md, "Ground rules"),
// because libm's results differ from version to version. simd_math.h has the same functions over
// vectors, equal bit by bit. The double functions are for tables (RoPE), never for inner loops.
#pragma once

namespace millrace {

// e^x, at most 1.05 ulp off. 0 below -87.3 (so no denormal results), +inf above the largest float's
// logarithm, NaN stays NaN, exp_f32(0) = 1 exactly. Method: x = n ln2 + r, polynomial in r
// (Chebyshev nodes, relative error 2^-26), n added to the exponent.
float exp_f32(float x);

// x / (1 + e^-x), in this order: the one expression for silu, also where it is fused.
float silu(float x);

// Natural logarithm of a float, correctly rounded but for rare near-ties. -inf at 0, NaN below.
float log_f32(float x);

// Doubles, within about 1e-15 of the true value (relative). Domains: exp_f64 any (0 below -700,
// +inf above 709); log_f64 normal positive numbers, else -inf at 0 and NaN below; pow_f64 a > 0.
double exp_f64(double x);
double log_f64(double x);
double pow_f64(double a, double b);

// Sine and cosine, absolute error below 1e-15 for |x| < 2^30, finite for all finite x. NaN for
// infinities and NaN.
void sincos_f64(double x, double& sine, double& cosine);

}  // namespace millrace
