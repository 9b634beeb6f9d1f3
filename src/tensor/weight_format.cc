#include "tensor/weight_format.h"

#include <array>
#include <cstring>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace millrace {
namespace {

constexpr std::array<FormatInfo, kNumWeightFormats> kFormats = {{
    // name, block, bytes, group, bits, offset, quantized, has_min, scales_fit_f16
    {"F32", 1, 4, 1, 32, 0, false, false, false},
    {"F16", 1, 2, 1, 16, 0, false, false, false},
    {"BF16", 1, 2, 1, 16, 0, false, false, false},
    {"Q8_0", 32, 34, 32, 8, 128, true, false, true},
    {"Q4_0", 32, 18, 32, 4, 8, true, false, true},
    {"Q4_1", 32, 20, 32, 4, 0, true, true, true},
    {"Q5_0", 32, 22, 32, 5, 16, true, false, true},
    {"Q5_1", 32, 24, 32, 5, 0, true, true, true},
    {"Q4_K", 256, 144, 32, 4, 0, true, true, false},
    {"Q5_K", 256, 176, 32, 5, 0, true, true, false},
    {"Q6_K", 256, 210, 16, 6, 32, true, false, false},
}};

constexpr int kMaxBlock = 256;
constexpr int kMaxGroups = 16;

// One block taken apart. `codes` has info.block entries, `scales` and `mins` info.block /
// info.group. None of them overlap, nor the source: said so that loops over bytes become vector
// code.
struct BlockParts {
  uint8_t* __restrict codes;
  float* __restrict scales;
  float* __restrict mins;
};

// Bit i of the index as byte i, worth 16: where the fifth bit of a code belongs.
constexpr std::array<std::array<uint8_t, 8>, 256> kFifthBits = [] {
  std::array<std::array<uint8_t, 8>, 256> table{};
  for (size_t bits = 0; bits < table.size(); ++bits) {
    for (size_t i = 0; i < 8; ++i) table[bits][i] = static_cast<uint8_t>((bits >> i & 1) << 4);
  }
  return table;
}();

uint8_t byte_at(const std::byte* src, int i) { return static_cast<uint8_t>(src[i]); }

uint16_t load_u16(const std::byte* src) {
  return static_cast<uint16_t>(byte_at(src, 0) | (byte_at(src, 1) << 8));
}

float load_f16(const std::byte* src) { return f16_to_f32(load_u16(src)); }

// Low nibbles are weights 0..15, high nibbles 16..31.
void unpack_nibbles_32(const std::byte* src, uint8_t* __restrict codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = byte_at(src, i) & 0x0f;
    codes[i + 16] = byte_at(src, i) >> 4;
  }
}

// The fifth bit of weight i is bit i of a 32-bit word.
void add_fifth_bits_32(const std::byte* high, uint8_t* __restrict codes) {
  for (int eight = 0; eight < 4; ++eight) {
    const auto& bits = kFifthBits[byte_at(high, eight)];
    for (size_t i = 0; i < 8; ++i) codes[static_cast<size_t>(eight) * 8 + i] |= bits[i];
  }
}

void unpack_q8_0(const std::byte* src, BlockParts out) {
  out.scales[0] = load_f16(src);
  // Two's complement plus 128 is the same byte with its top bit flipped.
  for (int i = 0; i < 32; ++i) out.codes[i] = byte_at(src, 2 + i) ^ 0x80;
}

void unpack_q4_0(const std::byte* src, BlockParts out) {
  out.scales[0] = load_f16(src);
  unpack_nibbles_32(src + 2, out.codes);
}

void unpack_q4_1(const std::byte* src, BlockParts out) {
  out.scales[0] = load_f16(src);
  out.mins[0] = load_f16(src + 2);
  unpack_nibbles_32(src + 4, out.codes);
}

void unpack_q5_0(const std::byte* src, BlockParts out) {
  out.scales[0] = load_f16(src);
  unpack_nibbles_32(src + 6, out.codes);
  add_fifth_bits_32(src + 2, out.codes);
}

void unpack_q5_1(const std::byte* src, BlockParts out) {
  out.scales[0] = load_f16(src);
  out.mins[0] = load_f16(src + 2);
  unpack_nibbles_32(src + 8, out.codes);
  add_fifth_bits_32(src + 4, out.codes);
}

// Scales and minimums of Q4_K and Q5_K: eight pairs of 6-bit numbers in 12 bytes. Bytes 0-3 hold
// the scales of groups 0-3 and bytes 4-7 their minimums (6 bits each); bytes 8-11 hold the low
// nibbles of the rest, whose two top bits are those of bytes 0-7.
void unpack_k_scales(const std::byte* src, BlockParts out) {
  const float d = load_f16(src);
  const float dmin = load_f16(src + 2);
  const std::byte* packed = src + 4;
  for (int g = 0; g < 8; ++g) {
    int scale;
    int min;
    if (g < 4) {
      scale = byte_at(packed, g) & 63;
      min = byte_at(packed, g + 4) & 63;
    } else {
      scale = (byte_at(packed, g + 4) & 0x0f) | ((byte_at(packed, g - 4) >> 6) << 4);
      min = (byte_at(packed, g + 4) >> 4) | ((byte_at(packed, g) >> 6) << 4);
    }
    out.scales[g] = d * static_cast<float>(scale);
    out.mins[g] = -(dmin * static_cast<float>(min));
  }
}

// Each 32 bytes hold two groups: low nibbles the first, high nibbles the second.
void unpack_k_nibbles(const std::byte* src, uint8_t* __restrict codes) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t both = byte_at(src, pair * 32 + i);
      codes[pair * 64 + i] = both & 0x0f;
      codes[pair * 64 + 32 + i] = both >> 4;
    }
  }
}

void unpack_q4_k(const std::byte* src, BlockParts out) {
  unpack_k_scales(src, out);
  unpack_k_nibbles(src + 16, out.codes);
}

void unpack_q5_k(const std::byte* src, BlockParts out) {
  unpack_k_scales(src, out);
  unpack_k_nibbles(src + 48, out.codes);
  // Bit g of byte i is the fifth bit of weight i of group g.
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      out.codes[g * 32 + i] |= static_cast<uint8_t>(((byte_at(src, 16 + i) >> g) & 1) << 4);
    }
  }
}

// Two halves of 128 weights: 64 bytes of low nibbles, 32 bytes of upper bit pairs, 8 signed scales.
void unpack_q6_k(const std::byte* src, BlockParts out) {
  const float d = load_f16(src + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = src + half * 64;
    const std::byte* high = src + 128 + half * 32;
    uint8_t* __restrict codes = out.codes + half * 128;
    for (int i = 0; i < 32; ++i) {
      const int top = byte_at(high, i);
      codes[i] = static_cast<uint8_t>((byte_at(low, i) & 0x0f) | ((top & 3) << 4));
      codes[i + 32] = static_cast<uint8_t>((byte_at(low, i + 32) & 0x0f) | (((top >> 2) & 3) << 4));
      codes[i + 64] = static_cast<uint8_t>((byte_at(low, i) >> 4) | (((top >> 4) & 3) << 4));
      codes[i + 96] = static_cast<uint8_t>((byte_at(low, i + 32) >> 4) | ((top >> 6) << 4));
    }
  }
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = d * static_cast<float>(static_cast<int8_t>(byte_at(src, 192 + g)));
  }
}

void unpack_block(WeightFormat format, const std::byte* src, BlockParts out) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return unpack_q8_0(src, out);
    case WeightFormat::kQ4_0:
      return unpack_q4_0(src, out);
    case WeightFormat::kQ4_1:
      return unpack_q4_1(src, out);
    case WeightFormat::kQ5_0:
      return unpack_q5_0(src, out);
    case WeightFormat::kQ5_1:
      return unpack_q5_1(src, out);
    case WeightFormat::kQ4_K:
      return unpack_q4_k(src, out);
    case WeightFormat::kQ5_K:
      return unpack_q5_k(src, out);
    case WeightFormat::kQ6_K:
      return unpack_q6_k(src, out);
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
  }
  MR_CHECK(false, "{} is not a quantised format", name_of(format));
}

void dequantize_block(WeightFormat format, const FormatInfo& facts, const std::byte* src,
                      float* __restrict dst) {
  uint8_t codes[kMaxBlock];
  float scales[kMaxGroups];
  float mins[kMaxGroups];
  unpack_block(format, src, {codes, scales, mins});
  for (int g = 0; g < facts.block / facts.group; ++g) {
    const uint8_t* group_codes = codes + g * facts.group;
    float* group_dst = dst + g * facts.group;
    for (int i = 0; i < facts.group; ++i) {
      // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): all codes are unpacked
      group_dst[i] = scales[g] * static_cast<float>(group_codes[i] - facts.offset);
    }
    if (!facts.has_min) continue;
    for (int i = 0; i < facts.group; ++i) group_dst[i] += mins[g];
  }
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

const FormatInfo& info(WeightFormat format) {
  const auto index = static_cast<size_t>(format);
  MR_CHECK(index < kFormats.size(), "bad weight format {}", index);
  return kFormats[index];
}

std::optional<WeightFormat> parse_weight_format(std::string_view name) {
  std::string wanted(name);
  for (char& c : wanted) c = upper(c);
  for (int i = 0; i < kNumWeightFormats; ++i) {
    if (kFormats[static_cast<size_t>(i)].name == wanted) return static_cast<WeightFormat>(i);
  }
  return std::nullopt;
}

int64_t row_bytes(WeightFormat format, int64_t k) {
  const FormatInfo& facts = info(format);
  MR_CHECK(k % facts.block == 0, "{} weights are no whole blocks of {}", k, facts.name);
  return k / facts.block * facts.bytes;
}

void dequantize_row(WeightFormat format, const std::byte* src, float* dst, int64_t n) {
  const FormatInfo& facts = info(format);
  MR_CHECK(n % facts.block == 0, "{} weights are no whole blocks of {}", n, facts.name);
  if (format == WeightFormat::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * 4);
  } else if (format == WeightFormat::kF16) {
    for (int64_t i = 0; i < n; ++i) dst[i] = load_f16(src + 2 * i);
  } else if (format == WeightFormat::kBF16) {
    for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(load_u16(src + 2 * i));
  } else {
    for (int64_t i = 0; i < n; i += facts.block, src += facts.bytes) {
      dequantize_block(format, facts, src, dst + i);
    }
  }
}

void unpack_row(WeightFormat format, const std::byte* src, int64_t n, uint8_t* codes, float* scales,
                float* mins) {
  const FormatInfo& facts = info(format);
  MR_CHECK(facts.quantized && n % facts.block == 0, "{} {} weights", n, facts.name);
  const int groups = facts.block / facts.group;
  for (int64_t block = 0; block < n / facts.block; ++block) {
    const int64_t group = block * groups;
    unpack_block(format, src + block * facts.bytes,
                 {codes + block * facts.block, scales + group, mins});
    if (facts.has_min) mins += groups;  // may be null otherwise
  }
}

}  // namespace millrace
