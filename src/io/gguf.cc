#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "io/gguf_reader.h"

namespace millrace {
namespace {

constexpr int64_t kMaxSplitParts = 99999;
constexpr uint32_t kMaxDims = 4;
// Far above what models hold; keeps a damaged count in a large file from taking absurd memory.
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr int64_t kMaxAlignment = int64_t{1} << 24;
constexpr int64_t kDefaultAlignment = 32;
// Length of a name, number of dimensions, one size, type, offset.
constexpr int64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

struct TypeId {
  uint32_t id;
  WeightFormat format;
};

constexpr std::array<TypeId, kNumWeightFormats> kTypes = {{{0, WeightFormat::kF32},
                                                           {1, WeightFormat::kF16},
                                                           {2, WeightFormat::kQ4_0},
                                                           {3, WeightFormat::kQ4_1},
                                                           {6, WeightFormat::kQ5_0},
                                                           {7, WeightFormat::kQ5_1},
                                                           {8, WeightFormat::kQ8_0},
                                                           {12, WeightFormat::kQ4_K},
                                                           {13, WeightFormat::kQ5_K},
                                                           {14, WeightFormat::kQ6_K},
                                                           {30, WeightFormat::kBF16}}};

// Names of types that exist and are not supported, for messages.
std::string unsupported_name(uint32_t id) {
  static constexpr std::array<std::pair<uint32_t, std::string_view>, 22> kNames = {
      {{9, "Q8_1"},    {10, "Q2_K"},    {11, "Q3_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"},
       {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
       {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {26, "I32"},
       {27, "I64"},    {28, "F64"},     {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},
       {39, "MXFP4"},  {40, "NVFP4"}}};
  for (const auto& [known, name] : kNames) {
    if (known == id) return std::string(name);
  }
  return fmt::format("number {}", id);
}

Result<WeightFormat> format_of(uint32_t id, const std::string& tensor) {
  for (const auto& type : kTypes) {
    if (type.id == id) return type.format;
  }
  std::string supported;
  for (const auto& type : kTypes) {
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", name_of(type.format));
  }
  return fail("tensor {}: type {} is not supported; supported: {}", tensor, unsupported_name(id),
              supported);
}

// A tensor as described, before its data are located.
struct Described {
  GgufTensor tensor;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Bytes of a tensor; nothing on overflow.
std::optional<int64_t> size_in_bytes(WeightFormat format, const std::vector<int64_t>& shape) {
  const FormatInfo& facts = info(format);
  int64_t bytes = shape.back() / facts.block;
  if (__builtin_mul_overflow(bytes, int64_t{facts.bytes}, &bytes)) return std::nullopt;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<Described> read_tensor(GgufReader& reader) {
  Described result;
  GgufTensor& tensor = result.tensor;
  MR_ASSIGN(tensor.name, reader.name("a tensor's name"));
  MR_ASSIGN(const uint32_t dims, reader.number<uint32_t>());
  if (dims < 1 || dims > kMaxDims) {
    return fail("tensor {}: {} dimensions, expected 1 to {}", tensor.name, dims, kMaxDims);
  }
  for (uint32_t i = 0; i < dims; ++i) {
    MR_ASSIGN(const uint64_t size, reader.number<uint64_t>());
    if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail("tensor {}: size {} of dimension {} is not valid", tensor.name, size, i);
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  MR_ASSIGN(const uint32_t type, reader.number<uint32_t>());
  MR_ASSIGN(const uint64_t offset, reader.number<uint64_t>());
  MR_ASSIGN(tensor.format, format_of(type, tensor.name));
  const FormatInfo& facts = info(tensor.format);
  if (tensor.shape.back() % facts.block != 0) {
    return fail("tensor {}: rows of {} are no whole blocks of {} ({} each)", tensor.name,
                tensor.shape.back(), facts.name, facts.block);
  }
  const auto bytes = size_in_bytes(tensor.format, tensor.shape);
  if (!bytes || offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return fail("tensor {}: [{}] of {} at {} is larger than any file", tensor.name,
                fmt::join(tensor.shape, ", "), facts.name, offset);
  }
  result.offset = static_cast<int64_t>(offset);
  result.bytes = *bytes;
  return result;
}

Result<int64_t> alignment_of(const GgufMetadata& metadata) {
  MR_ASSIGN(const auto stored, metadata.find_int("general.alignment"));
  const int64_t alignment = stored.value_or(kDefaultAlignment);
  if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
    return fail("metadata general.alignment: found {}, expected a power of two up to {}", alignment,
                kMaxAlignment);
  }
  return alignment;
}

// Gives each tensor its bytes. The data section begins at the aligned end of the header.
Result<> locate(std::vector<Described>& described, int64_t header_end, int64_t alignment,
                std::span<const std::byte> file) {
  const int64_t data_begin = (header_end + alignment - 1) / alignment * alignment;
  const auto data =
      file.subspan(static_cast<size_t>(std::min(data_begin, static_cast<int64_t>(file.size()))));
  std::vector<std::pair<int64_t, const Described*>> by_offset;
  for (Described& item : described) {
    GgufTensor& tensor = item.tensor;
    if (item.offset % alignment != 0) {
      return fail("tensor {}: its offset {} is not a multiple of the alignment {}", tensor.name,
                  item.offset, alignment);
    }
    const auto size = static_cast<int64_t>(data.size());
    if (item.offset > size || item.bytes > size - item.offset) {
      return fail("tensor {}: {} bytes at {} are beyond the file's {} bytes of data: it is cut off",
                  tensor.name, item.bytes, item.offset, size);
    }
    tensor.bytes = data.subspan(static_cast<size_t>(item.offset), static_cast<size_t>(item.bytes));
    by_offset.emplace_back(item.offset, &item);
  }
  std::ranges::sort(by_offset);
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const Described& before = *by_offset[i - 1].second;
    if (before.offset + before.bytes > by_offset[i].first) {
      return fail("tensors {} and {} overlap in the file", before.tensor.name,
                  by_offset[i].second->tensor.name);
    }
  }
  return {};
}

struct Counts {
  int version = 0;
  uint64_t tensors = 0;
  uint64_t pairs = 0;
};

Result<Counts> read_counts(GgufReader& reader) {
  Counts counts;
  MR_ASSIGN(const uint32_t magic, reader.number<uint32_t>());
  if (magic != 0x46554747u) return fail("not a GGUF file: it does not begin with \"GGUF\"");
  MR_ASSIGN(const uint32_t version, reader.number<uint32_t>());
  if (version != 0 && (version & 0xffffu) == 0) {
    return fail("a big-endian GGUF file: convert it to little-endian");
  }
  if (version != 2 && version != 3) {
    return fail("GGUF version {}, supported are 2 and 3: convert the model again", version);
  }
  counts.version = static_cast<int>(version);
  MR_ASSIGN(counts.tensors, reader.number<uint64_t>());
  MR_ASSIGN(counts.pairs, reader.number<uint64_t>());
  if (counts.tensors > kMaxTensors ||
      counts.tensors > static_cast<uint64_t>(reader.remaining() / kLeastTensorBytes)) {
    return fail("{} tensors cannot be in {} bytes: the file is damaged or cut off", counts.tensors,
                reader.remaining());
  }
  if (counts.pairs > static_cast<uint64_t>(reader.remaining() / kLeastPairBytes)) {
    return fail("{} metadata pairs cannot be in {} bytes: the file is damaged or cut off",
                counts.pairs, reader.remaining());
  }
  return counts;
}

// "x" of "x-00001-of-00003.gguf"; nothing for a name of another form.
std::optional<std::string> split_prefix(const std::string& path) {
  constexpr size_t kSuffix = sizeof("-00001-of-00003.gguf") - 1;
  if (path.size() < kSuffix) return std::nullopt;
  std::string shape = path.substr(path.size() - kSuffix);
  for (char& c : shape) {
    if (c >= '0' && c <= '9') c = '0';
  }
  if (shape != "-00000-of-00000.gguf") return std::nullopt;
  return path.substr(0, path.size() - kSuffix);
}

}  // namespace

Result<GgufShard> parse_gguf(std::span<const std::byte> bytes) {
  GgufReader reader(bytes);
  MR_ASSIGN(const Counts counts, read_counts(reader));
  GgufShard shard;
  shard.version = counts.version;
  for (uint64_t i = 0; i < counts.pairs; ++i) {
    MR_ASSIGN(std::string key, reader.name("a metadata key"));
    auto value = reader.value();
    if (!value) return fail_in(fmt::format("metadata {}", key), value.error());
    if (shard.metadata.contains(key)) return fail("metadata {}: is there twice", key);
    shard.metadata.insert(std::move(key), std::move(*value));
  }
  MR_ASSIGN(const int64_t alignment, alignment_of(shard.metadata));
  std::vector<Described> described;
  described.reserve(counts.tensors);
  for (uint64_t i = 0; i < counts.tensors; ++i) {
    MR_ASSIGN(Described item, read_tensor(reader));
    described.push_back(std::move(item));
  }
  MR_TRY(locate(described, reader.position(), alignment, bytes));
  for (Described& item : described) shard.tensors.push_back(std::move(item.tensor));
  return shard;
}

Result<Gguf> Gguf::open(const std::string& path) {
  Gguf result;
  MR_ASSIGN(MappedFile file, MappedFile::open(path));
  auto shard = parse_gguf(file.bytes());
  if (!shard) return fail_in(path, shard.error());
  auto stored_parts = shard->metadata.find_int("split.count");
  if (!stored_parts) return fail_in(path, stored_parts.error());
  const int64_t parts = stored_parts->value_or(1);
  if (parts <= 1) {
    MR_TRY(result.add_part(std::move(file), std::move(*shard)));
    return result;
  }
  if (parts > kMaxSplitParts) {
    return fail("{}: metadata split.count: found {}, expected at most {}", path, parts,
                kMaxSplitParts);
  }
  MR_TRY(result.open_parts(path, parts));
  return result;
}

Result<> Gguf::open_parts(const std::string& path, int64_t parts) {
  const auto prefix = split_prefix(path);
  if (!prefix) {
    return fail(
        "{}: is a part of a model split into {} files; its name must end with "
        "-00001-of-{:05}.gguf for the others to be found",
        path, parts, parts);
  }
  std::optional<int64_t> expected_tensors;
  for (int64_t part = 0; part < parts; ++part) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}.gguf", *prefix, part + 1, parts);
    std::error_code ignored;
    if (!std::filesystem::exists(name, ignored)) {
      return fail("{}: part {} of {} of the model is missing: download it too", name, part + 1,
                  parts);
    }
    MR_ASSIGN(MappedFile file, MappedFile::open(name));
    auto shard = parse_gguf(file.bytes());
    if (!shard) return fail_in(name, shard.error());
    const auto number = shard->metadata.get_int("split.no");
    const auto count = shard->metadata.get_int("split.count");
    if (!number || !count || *number != part || *count != parts) {
      return fail("{}: is not part {} of {} by its metadata: files of several models are mixed",
                  name, part + 1, parts);
    }
    if (part == 0) {
      const auto total = shard->metadata.find_int("split.tensors.count");
      if (!total) return fail_in(name, total.error());
      expected_tensors = *total;
    }
    MR_TRY(add_part(std::move(file), std::move(*shard)));
  }
  if (expected_tensors && *expected_tensors != static_cast<int64_t>(tensors_.size())) {
    return fail("{}: the parts hold {} tensors, expected {} by split.tensors.count", path,
                tensors_.size(), *expected_tensors);
  }
  return {};
}

Result<> Gguf::add_part(MappedFile file, GgufShard shard) {
  const int index = static_cast<int>(files_.size());
  if (index == 0) {
    metadata_ = std::move(shard.metadata);
    version_ = shard.version;
  }
  for (GgufTensor& tensor : shard.tensors) {
    tensor.file = index;
    if (find(tensor.name) != nullptr) {
      return fail("{}: tensor {} is there twice", file.path(), tensor.name);
    }
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  files_.push_back(std::move(file));
  return {};
}

const GgufTensor* Gguf::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace millrace
