#include "weights/dummy_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"
#include "tensor/packing.h"
#include "weights/panel_pieces.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;

// Word `index` of the random numbers of a stream (SplitMix64: Steele, Lea and Flood, 2014).
uint64_t random_word(uint64_t stream, uint64_t index) {
  uint64_t z = stream + index * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// Random bits that are kept of each word, and bits that are set in all of them.
struct Pattern {
  uint64_t keep = 0;
  uint64_t set = 0;
};

Pattern repeat(uint64_t keep, uint64_t set, int bits) {
  Pattern pattern;
  for (int at = 0; at < 64; at += bits) {
    pattern.keep |= keep << at;
    pattern.set |= set << at;
  }
  return pattern;
}

// Floats of both signs, the magnitudes spread over one power of two.
Pattern float_pattern(PackedKind kind, int64_t k) {
  // Their root mean square is 1.53 times that power.
  const int exponent =
      static_cast<int>(std::lround(std::log2(std::pow(static_cast<double>(k), -0.5) / 1.53)));
  const float power = std::ldexp(1.0f, exponent);
  if (kind == PackedKind::kF16) return repeat(0x83ff, f32_to_f16(power), 16);
  if (kind == PackedKind::kBF16) return repeat(0x807f, f32_to_bf16(power), 16);
  return repeat(0x807fffff, std::bit_cast<uint32_t>(power), 32);
}

// Codes of a quantised format: every value of its bits.
Pattern code_pattern(int bits) {
  return bits == 4 ? repeat(0xff, 0, 8) : repeat((uint64_t{1} << bits) - 1, 0, 8);
}

void fill(std::byte* dst, int64_t bytes, uint64_t stream, int64_t at, const Pattern& pattern) {
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t word =
        (random_word(stream, static_cast<uint64_t>(at + i)) & pattern.keep) | pattern.set;
    std::memcpy(dst + i, &word, 8);
  }
}

// `value` in all lanes, negative in those whose bit of `signs` is set.
void put_scales(float value, uint64_t signs, bool wide, std::byte* scales) {
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    const float scale = (signs >> lane & 1) != 0 ? -value : value;
    const uint16_t half = f32_to_f16(scale);
    if (wide) std::memcpy(scales + 4 * lane, &scale, 4);
    if (!wide) std::memcpy(scales + 2 * lane, &half, 2);
  }
}

// One matrix, and the bits of its format's codes.
struct DummyMatrix {
  PackedMatrix* target = nullptr;
  int64_t offset = 0;
  int bits = 0;
};

void make_panel(const DummyMatrix& matrix, uint64_t stream, int64_t panel) {
  const PackedMatrix& target = *matrix.target;
  auto* dst = const_cast<std::byte*>(target.panel(panel));
  const int64_t bytes = target.panel_bytes();
  const int64_t at = panel * bytes;
  if (!target.is_quantised()) {
    return fill(dst, bytes, stream, at, float_pattern(target.kind, target.k));
  }
  const QuantLayout& layout = target.quant;
  const Pattern pattern = code_pattern(matrix.bits);
  // Codes 0 .. c-1 alike have the variance (c^2 - 1) / 12.
  const float codes = std::ldexp(1.0f, matrix.bits);
  const float scale = std::sqrt(12.0f / ((codes * codes - 1.0f) * static_cast<float>(target.k)));
  const float min = -0.5f * (codes - 1.0f) * scale;
  for (int64_t begin = 0; begin < bytes; begin += layout.block_bytes()) {
    std::byte* block = dst + begin;
    fill(block, layout.code_bytes(), stream, at + begin, pattern);
    // Scales of both signs: codes are not spread evenly around their offset.
    const auto index = static_cast<uint64_t>(at + begin + layout.code_bytes());
    const uint64_t signs = random_word(stream, index);
    put_scales(scale, signs, layout.wide_scales, block + layout.code_bytes());
    if (layout.has_min) {
      put_scales(min, signs, layout.wide_scales,
                 block + layout.code_bytes() + layout.scale_bytes());
    }
  }
}

// Notes what a plan asks for; make() makes it.
class DummySink : public WeightSink {
 public:
  explicit DummySink(WeightFormat format) : format_(format) {}

  NameStyle style() const override { return NameStyle::kHuggingFace; }
  bool has(const std::string&) const override { return false; }

  Result<> matrix(const std::string&, MatrixShape shape, PackedMatrix* target) override {
    return add(format_for(shape.k), shape, target);
  }
  Result<> matrix_f32(const std::string&, MatrixShape shape, PackedMatrix* target) override {
    return add(WeightFormat::kF32, shape, target);
  }
  Result<> matrices(const std::string& module, MatrixShape shape,
                    std::vector<PackedMatrix>& targets) override {
    for (PackedMatrix& target : targets) MR_TRY(matrix(module, shape, &target));
    return {};
  }
  Result<> kv_up(const std::string& module, KvUpShape shape, std::vector<PackedMatrix>& k_up,
                 std::vector<PackedMatrix>& v_up) override {
    MR_TRY(matrices(module, {shape.latent, shape.nope}, k_up));
    return matrices(module, {shape.v, shape.latent}, v_up);
  }
  Result<> vector(const std::string& name, int64_t size, const float** target) override {
    const float value = name.ends_with("bias") ? 0.0f : 1.0f;
    vectors_.push_back({target, reserve(size * int64_t{sizeof(float)}), size, value});
    return {};
  }

  int64_t reserved_bytes() const { return reserved_; }

  Result<Buffer> make(ThreadTeam& team, Progress& progress) {
    MR_ASSIGN(Buffer storage, Buffer::allocate(static_cast<size_t>(reserved_)));
    for (const Vector& vector : vectors_) {
      auto* values = storage.as<float>(static_cast<size_t>(vector.offset));
      std::fill_n(values, vector.size, vector.value);
      *vector.target = values;
    }
    std::vector<PackedMatrix*> targets;
    for (const DummyMatrix& matrix : matrices_) {
      matrix.target->panels = storage.data() + matrix.offset;
      targets.push_back(matrix.target);
    }
    progress.begin("making weights", reserved_, true);
    for_pieces(team, panel_pieces(targets), [&](const PanelPiece& piece) {
      const uint64_t stream = random_word(kSeed, piece.matrix);
      for (int64_t panel = piece.begin; panel < piece.end; ++panel) {
        make_panel(matrices_[piece.matrix], stream, panel);
      }
      progress.advance((piece.end - piece.begin) * targets[piece.matrix]->panel_bytes());
      return true;
    });
    progress.end();
    return storage;
  }

 private:
  static constexpr uint64_t kSeed = 1;

  struct Vector {
    const float** target;
    int64_t offset;
    int64_t size;
    float value;
  };

  // As files have it where the inputs are no whole blocks.
  WeightFormat format_for(int64_t k) const {
    if (k % info(format_).block == 0) return format_;
    return k % info(WeightFormat::kQ8_0).block == 0 ? WeightFormat::kQ8_0 : WeightFormat::kF16;
  }

  Result<> add(WeightFormat format, MatrixShape shape, PackedMatrix* target) {
    MR_ASSIGN(*target, packed_layout(format, shape.n, shape.k));
    matrices_.push_back({target, reserve(target->total_bytes()), info(format).bits});
    return {};
  }

  int64_t reserve(int64_t bytes) {
    const int64_t offset = reserved_;
    reserved_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }

  const WeightFormat format_;
  std::vector<DummyMatrix> matrices_;
  std::vector<Vector> vectors_;
  int64_t reserved_ = 0;
};

}  // namespace

Result<ModelWeights> make_dummy_weights(const ModelConfig& config, WeightFormat format,
                                        ThreadTeam& team, Progress& progress) {
  ModelWeights weights;
  DummySink sink(format);
  MR_TRY(plan_weights(config, sink, weights));
  MR_ASSIGN(weights.storage, sink.make(team, progress));
  if (config.tie_word_embeddings) weights.head = weights.embedding;
  return weights;
}

Result<int64_t> dummy_weight_bytes(const ModelConfig& config, WeightFormat format) {
  ModelWeights weights;
  DummySink sink(format);
  MR_TRY(plan_weights(config, sink, weights));
  return sink.reserved_bytes();
}

}  // namespace millrace
