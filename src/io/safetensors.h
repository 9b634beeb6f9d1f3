// safetensors: reading (one file, or shards with an index) and writing.
// Format: 8 bytes little-endian header length, JSON header, data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/mapped_file.h"
#include "tensor/dtype.h"

namespace millrace {

// A tensor inside a mapped file. `bytes` holds exactly shape x dtype, row-major, little-endian;
// its address is aligned to nothing in particular.
struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  int file = 0;  // index into Safetensors::files()
};

// What the header of one file says.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Parses one file's contents; `bytes` must outlive the result. Every size is checked against the
// file before use: hostile contents are errors. Messages do not name the file.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes);

// One file or a set of shards, mapped. Tensors are found by name.
class Safetensors {
 public:
  // `path`: a .safetensors file, an index (*.safetensors.index.json), or a folder that holds
  // model.safetensors.index.json or model.safetensors. Errors: whatever is wrong with a file; a
  // shard that the index names is absent; a tensor that the index names is not in its shard.
  static Result<Safetensors> open(const std::string& path);

  const std::vector<MappedFile>& files() const { return files_; }
  const std::map<std::string, SafetensorsTensor, std::less<>>& tensors() const { return tensors_; }

  // Null if there is no such tensor.
  const SafetensorsTensor* find(std::string_view name) const;

  // Hands the mapped files to a new owner, who keeps the tensors' views valid.
  std::vector<MappedFile> take_files() && { return std::move(files_); }

 private:
  Result<> add_file(const std::string& path);

  std::vector<MappedFile> files_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
};

// False if `path` is a folder without any safetensors of a model (model*.safetensors, or an index
// of them), which cannot be opened. True for parts of a model, with which opening fails, too.
bool has_safetensors(const std::string& path);

// Collects tensors and writes them as one file. Copies what it is given.
class SafetensorsWriter {
 public:
  // `bytes` must hold exactly shape x dtype; names must be unique (internal errors).
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           std::span<const std::byte> bytes);

  template <typename T>
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    add(name, dtype, std::move(shape), std::as_bytes(std::span(values)));
  }

  static std::string partial_name(const std::string& path) { return path + ".partial"; }

  // Writes to a neighbouring name (partial_name) first and renames, so that `path` is either old or
  // whole. `stopped`, if given, is asked while it writes; true is an error ("stopped"), and no part
  // stays.
  Result<> write(const std::string& path, const std::function<bool()>& stopped = {}) const;

 private:
  struct Entry {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace millrace
