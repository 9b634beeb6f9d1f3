// Deterministic damage to byte strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::fuzz {

using Bytes = std::vector<uint8_t>;

// SplitMix64: a small generator whose numbers are the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // Below `bound`; 0 if bound is 0.
  size_t below(size_t bound) { return bound == 0 ? 0 : next() % bound; }

 private:
  uint64_t state_;
};

// A damaged copy of a member of the corpus: one to four of truncation, bit flips, edits of numbers
// that may be lengths (4 or 8 bytes, or decimal digits), deleted, repeated and transplanted chunks.
Bytes mutate(const std::vector<Bytes>& corpus, Random& random);

}  // namespace millrace::fuzz
