// Constants of exp_f32 for its scalar (math.cc) and vector (simd_math.h) forms. Plain constants
// only: files of every instruction set include this.
#pragma once

namespace millrace {

inline constexpr float kExpMin = -87.3f;          // below: 0
inline constexpr float kExpMax = 0x1.62e42ep+6f;  // above: +inf
inline constexpr float kExpMagic = 0x1.8p+23f;    // adding it rounds to an integer
inline constexpr float kExpLog2E = 0x1.715476p+0f;
inline constexpr float kExpLn2High = 0x1.62e43p-1f;
inline constexpr float kExpLn2Low = -0x1.05c61p-29f;
// (e^r - 1 - r) / r^2 on |r| <= ln2 / 2, interpolated at the Chebyshev nodes.
inline constexpr float kExpC2 = 0x1p-1f;
inline constexpr float kExpC3 = 0x1.5554dcp-3f;
inline constexpr float kExpC4 = 0x1.55551ap-5f;
inline constexpr float kExpC5 = 0x1.120ba2p-7f;
inline constexpr float kExpC6 = 0x1.6d113cp-10f;

}  // namespace millrace
