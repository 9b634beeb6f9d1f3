#include "mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace millrace::fuzz {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 16;

uint64_t telling_number(size_t length, Random& random) {
  const std::array<uint64_t, 14> numbers = {0,
                                            1,
                                            2,
                                            0x7f,
                                            0xff,
                                            0x7fffffff,
                                            0xffffffff,
                                            uint64_t{1} << 32,
                                            uint64_t{1} << 40,
                                            INT64_MAX,
                                            UINT64_MAX,
                                            length,
                                            length + 1,
                                            length / 2};
  return numbers[random.below(numbers.size())];
}

void truncate(Bytes& bytes, Random& random) { bytes.resize(random.below(bytes.size() + 1)); }

void flip_bits(Bytes& bytes, Random& random) {
  if (bytes.empty()) return;
  for (size_t i = 0; i <= random.below(8); ++i) {
    bytes[random.below(bytes.size())] ^= static_cast<uint8_t>(1u << random.below(8));
  }
}

void edit_length(Bytes& bytes, Random& random) {
  const size_t width = random.below(2) == 0 ? 4 : 8;
  if (bytes.size() < width) return;
  const size_t at = random.below(bytes.size() - width + 1);
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, width);
  // Small changes too: off by one is the classic.
  number =
      random.below(3) == 0 ? number + 1 - random.below(3) : telling_number(bytes.size(), random);
  std::memcpy(bytes.data() + at, &number, width);
}

void edit_digits(Bytes& bytes, Random& random) {
  std::vector<size_t> digits;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] >= '0' && bytes[i] <= '9') digits.push_back(i);
  }
  if (digits.empty()) return;
  constexpr std::array<std::string_view, 10> kTexts = {
      "0",    "-1", "1e999", "18446744073709551616", "9223372036854775807", "1.5", "null",
      "true", "[]", "\"x\""};
  const size_t at = digits[random.below(digits.size())];
  const std::string_view text = kTexts[random.below(kTexts.size())];
  bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), text.begin(), text.end());
}

// [begin, end) of at most 64 bytes.
std::pair<std::ptrdiff_t, std::ptrdiff_t> chunk(const Bytes& bytes, Random& random) {
  const size_t begin = random.below(bytes.size());
  const size_t length = std::min(bytes.size() - begin, 1 + random.below(64));
  return {static_cast<std::ptrdiff_t>(begin), static_cast<std::ptrdiff_t>(begin + length)};
}

void erase_chunk(Bytes& bytes, Random& random) {
  if (bytes.empty()) return;
  const auto [begin, end] = chunk(bytes, random);
  bytes.erase(bytes.begin() + begin, bytes.begin() + end);
}

void insert_chunk(Bytes& bytes, const Bytes& donor, Random& random) {
  if (donor.empty() || bytes.size() > kMaxBytes) return;
  const auto [begin, end] = chunk(donor, random);
  const Bytes piece(donor.begin() + begin, donor.begin() + end);
  const auto at = static_cast<std::ptrdiff_t>(random.below(bytes.size() + 1));
  bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
}

}  // namespace

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

Bytes mutate(const std::vector<Bytes>& corpus, Random& random) {
  Bytes bytes = corpus[random.below(corpus.size())];
  const Bytes& donor = corpus[random.below(corpus.size())];
  for (size_t i = 0; i <= random.below(4); ++i) {
    switch (random.below(8)) {
      case 0:
        truncate(bytes, random);
        break;
      case 1:
      case 2:
        flip_bits(bytes, random);
        break;
      case 3:
      case 4:
        edit_length(bytes, random);
        break;
      case 5:
        edit_digits(bytes, random);
        break;
      case 6:
        erase_chunk(bytes, random);
        break;
      default:
        insert_chunk(bytes, donor, random);
        break;
    }
  }
  return bytes;
}

}  // namespace millrace::fuzz
