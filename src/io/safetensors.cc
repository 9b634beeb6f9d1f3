#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/describe_json.h"
#include "io/json.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;
constexpr int kHeaderDepth = 4;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kLengthBytes = 8;

struct DTypeName {
  std::string_view name;
  DType dtype;
};

constexpr std::array<DTypeName, 11> kDTypes = {{{"F64", DType::kF64},
                                                {"F32", DType::kF32},
                                                {"F16", DType::kF16},
                                                {"BF16", DType::kBF16},
                                                {"F8_E4M3", DType::kF8E4M3},
                                                {"I64", DType::kI64},
                                                {"I32", DType::kI32},
                                                {"I16", DType::kI16},
                                                {"I8", DType::kI8},
                                                {"U8", DType::kU8},
                                                {"BOOL", DType::kBool}}};

std::optional<DType> parse_type(std::string_view name) {
  for (const auto& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

// A JSON number that is a non-negative int64.
std::optional<int64_t> as_size(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

// Product of the shape times the element size, or nothing on overflow.
std::optional<int64_t> tensor_bytes(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = size_of(dtype);
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Names go into messages as they are: no control characters, bounded.
bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
}

Result<std::vector<int64_t>> parse_shape(const std::string& name, const nlohmann::json& value) {
  if (!value.is_array() || value.size() > kMaxDims) {
    return fail("tensor {}: shape is {}, expected an array of at most {} sizes", name,
                describe(value), kMaxDims);
  }
  std::vector<int64_t> shape;
  for (const auto& dim : value) {
    const auto size = as_size(dim);
    if (!size) return fail("tensor {}: size {} in its shape is not valid", name, describe(dim));
    shape.push_back(*size);
  }
  return shape;
}

Result<SafetensorsTensor> parse_tensor(const std::string& name, const nlohmann::json& entry,
                                       std::span<const std::byte> data) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return fail("tensor {}: expected an object with dtype, shape and data_offsets, found {}", name,
                describe(entry));
  }
  const auto& type = entry["dtype"];
  const auto dtype =
      type.is_string() ? parse_type(type.get_ref<const std::string&>()) : std::optional<DType>();
  if (!dtype) return fail("tensor {}: element type {} is not supported", name, describe(type));
  MR_ASSIGN(std::vector<int64_t> shape, parse_shape(name, entry["shape"]));
  const auto& offsets = entry["data_offsets"];
  std::optional<int64_t> begin;
  std::optional<int64_t> end;
  if (offsets.is_array() && offsets.size() == 2) {
    begin = as_size(offsets[0]);
    end = as_size(offsets[1]);
  }
  if (!begin || !end || *begin > *end) {
    return fail("tensor {}: data_offsets are not valid: {}", name, describe(offsets));
  }
  if (*end > static_cast<int64_t>(data.size())) {
    return fail("tensor {}: its data end at byte {} of {}: the file is cut off", name, *end,
                data.size());
  }
  const auto bytes = tensor_bytes(*dtype, shape);
  if (!bytes || *bytes != *end - *begin) {
    return fail("tensor {}: [{}] of {} does not take the {} bytes that data_offsets give it", name,
                fmt::join(shape, ", "), name_of(*dtype), *end - *begin);
  }
  SafetensorsTensor tensor{name, *dtype, std::move(shape), {}, 0};
  tensor.bytes = data.subspan(static_cast<size_t>(*begin), static_cast<size_t>(*bytes));
  return tensor;
}

// The data must be covered by the tensors, once and without holes.
Result<> check_coverage(std::vector<SafetensorsTensor>& tensors, std::span<const std::byte> data) {
  std::ranges::sort(tensors, [](const auto& a, const auto& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  const std::byte* covered = data.data();
  for (const auto& tensor : tensors) {
    if (tensor.bytes.data() != covered) {
      return fail(
          "tensor {}: its data begin at byte {}, expected {}: tensors overlap or leave a gap",
          tensor.name, tensor.bytes.data() - data.data(), covered - data.data());
    }
    covered += tensor.bytes.size();
  }
  const auto total = static_cast<size_t>(covered - data.data());
  if (total != data.size()) {
    return fail("the tensors cover {} bytes of data, the file has {}", total, data.size());
  }
  return {};
}

Result<> parse_metadata(const nlohmann::json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return fail("__metadata__ is {}, expected an object", describe(value));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return fail("__metadata__.{} is {}, expected a string", one_short_line(key), describe(text));
    }
    metadata[key] = text.get<std::string>();
  }
  return {};
}

// The shards that an index names, each once, and for each tensor the shard it should be in.
struct ShardIndex {
  std::set<std::string> shards;
  std::map<std::string, std::string> shard_of;
};

Result<ShardIndex> read_index(const std::string& path) {
  MR_ASSIGN(const nlohmann::json json, read_json_file(path));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return fail("{}: expected an object with a weight_map", path);
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!is_valid_name(tensor)) {
      return fail("{}: a tensor's name is not valid: \"{}\"", path, one_short_line(tensor));
    }
    if (!shard.is_string()) {
      return fail("{}: tensor {}: file is {}, expected a string", path, tensor, describe(shard));
    }
    const std::string file = shard.get<std::string>();
    if (!is_valid_name(file) || file == ".." || file.find('/') != std::string::npos) {
      return fail("{}: tensor {}: file {} must be a name in the same folder", path, tensor,
                  describe(shard));
    }
    index.shards.insert(file);
    index.shard_of[tensor] = file;
  }
  if (index.shards.empty()) return fail("{}: the weight_map is empty", path);
  return index;
}

// The file that stands for a folder: its index if there is one, else model.safetensors.
Result<std::string> find_in_folder(const std::string& folder) {
  const std::filesystem::path base(folder);
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    std::error_code ignored;
    if (std::filesystem::exists(base / name, ignored)) return (base / name).string();
  }
  return fail("{}: no model.safetensors and no model.safetensors.index.json in this folder",
              folder);
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return fail("{} bytes are no safetensors file: the header alone takes more", bytes.size());
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return fail("not a safetensors file: its header would take {} bytes, at most {} are read",
                header_bytes, kMaxHeaderBytes);
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return fail("the header takes {} bytes, the file has {} after the length: it is cut off",
                header_bytes, bytes.size() - kLengthBytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              header_bytes);
  const auto json = parse_json(text, kHeaderDepth);
  if (!json) return fail_in("header", json.error());
  if (!json->is_object()) return fail("header is {}, expected an object", describe(*json));
  const auto data = bytes.subspan(kLengthBytes + header_bytes);
  SafetensorsHeader header;
  for (const auto& [name, entry] : json->items()) {
    if (name == "__metadata__") {
      MR_TRY(parse_metadata(entry, header.metadata));
      continue;
    }
    if (!is_valid_name(name)) {
      return fail("a tensor's name is not valid: \"{}\"", one_short_line(name));
    }
    MR_ASSIGN(SafetensorsTensor tensor, parse_tensor(name, entry, data));
    header.tensors.push_back(std::move(tensor));
  }
  MR_TRY(check_coverage(header.tensors, data));
  return header;
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  std::error_code ignored;
  std::string file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    MR_ASSIGN(file, find_in_folder(path));
  }
  Safetensors result;
  if (!file.ends_with(".index.json")) {
    MR_TRY(result.add_file(file));
    return result;
  }
  MR_ASSIGN(const ShardIndex index, read_index(file));
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::map<std::string, int> file_of_shard;
  for (const std::string& shard : index.shards) {
    const std::string shard_path = (folder / shard).string();
    if (!std::filesystem::exists(shard_path, ignored)) {
      return fail("{}: names the shard {}, which is not in the folder: download it again", file,
                  shard);
    }
    file_of_shard[shard] = static_cast<int>(result.files_.size());
    MR_TRY(result.add_file(shard_path));
  }
  for (const auto& [tensor, shard] : index.shard_of) {
    const SafetensorsTensor* found = result.find(tensor);
    if (found == nullptr || found->file != file_of_shard[shard]) {
      return fail("{}: tensor {} should be in {}, but is not there", file, tensor, shard);
    }
  }
  return result;
}

Result<> Safetensors::add_file(const std::string& path) {
  MR_ASSIGN(MappedFile file, MappedFile::open(path));
  auto header = parse_safetensors(file.bytes());
  if (!header) return fail_in(path, header.error());
  const int index = static_cast<int>(files_.size());
  files_.push_back(std::move(file));
  for (SafetensorsTensor& tensor : header->tensors) {
    tensor.file = index;
    const auto [at, inserted] = tensors_.try_emplace(tensor.name, tensor);
    if (!inserted) {
      return fail("{}: tensor {} is in {} too", path, tensor.name,
                  files_[static_cast<size_t>(at->second.file)].path());
    }
  }
  return {};
}

bool has_safetensors(const std::string& path) {
  std::error_code error;
  auto file = std::filesystem::directory_iterator(path, error);
  if (error) return true;  // no folder, or opening will say what is wrong with it
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!name.starts_with("model")) continue;  // such as token ids, or the output of forward
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
  }
  return static_cast<bool>(error);
}

const SafetensorsTensor* Safetensors::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace millrace
