// GGUF: reading v2 and v3 files, whole or split. The format: magic, version, counts, typed
// key-value pairs, tensor descriptions, aligned data; everything little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/gguf_metadata.h"
#include "io/mapped_file.h"
#include "tensor/weight_format.h"

namespace millrace {

// A tensor inside a mapped file.
struct GgufTensor {
  std::string name;
  WeightFormat format = WeightFormat::kF32;
  std::vector<int64_t> shape;  // outermost first, as torch has it: [rows (out), columns (in)]
  std::span<const std::byte> bytes;
  int file = 0;  // index into Gguf::files()
};

// What one file says.
struct GgufShard {
  int version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
};

// Parses one file's contents; tensors view into `bytes`, which must outlive the result. Every size
// is checked against the file before use. Messages do not name the file.
Result<GgufShard> parse_gguf(std::span<const std::byte> bytes);

// A GGUF model, mapped: one file, or all files of a split one.
class Gguf {
 public:
  // `path`: the file, or any part of a split model (name-00001-of-0000N.gguf); the other parts are
  // looked for beside it. Errors: as parse_gguf; a part is missing or does not belong.
  static Result<Gguf> open(const std::string& path);

  const std::vector<MappedFile>& files() const { return files_; }
  // The first part's metadata (parts repeat only what they need).
  const GgufMetadata& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  int version() const { return version_; }

  // Null if there is no such tensor.
  const GgufTensor* find(std::string_view name) const;

 private:
  Result<> open_parts(const std::string& path, int64_t parts);
  Result<> add_part(MappedFile file, GgufShard shard);

  std::vector<MappedFile> files_;
  GgufMetadata metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
  int version_ = 0;
};

}  // namespace millrace
