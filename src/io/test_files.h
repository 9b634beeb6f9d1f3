// For tests: folders that vanish, and GGUF files put together byte by byte.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::testing {

// A new folder, removed with everything in it at the end of the scope.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "millrace-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Writes a file and gives its path.
  std::string write(std::string_view name, std::span<const std::byte> bytes) const {
    std::ofstream out(file(name), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return file(name);
  }
  std::string write(std::string_view name, std::string_view text) const {
    return write(name, std::as_bytes(std::span(text.data(), text.size())));
  }

 private:
  std::string path_;
};

// Bytes in little-endian order, appended piece by piece.
class ByteWriter {
 public:
  template <typename T>
  ByteWriter& number(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  // Length, then the characters.
  ByteWriter& string(std::string_view text) {
    number<uint64_t>(text.size());
    return raw(text);
  }
  ByteWriter& raw(std::string_view text) {
    const auto view = std::as_bytes(std::span(text.data(), text.size()));
    bytes_.insert(bytes_.end(), view.begin(), view.end());
    return *this;
  }
  ByteWriter& raw(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    return *this;
  }
  ByteWriter& pad_to(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A small GGUF file. Type numbers are the format's: values 4 uint32, 6 float32, 8 string, 9 array;
// tensors 0 F32, 2 Q4_0.
class GgufBuilder {
 public:
  GgufBuilder& u32(std::string_view key, uint32_t value) {
    pair(key, 4).number(value);
    return *this;
  }
  GgufBuilder& f32(std::string_view key, float value) {
    pair(key, 6).number(value);
    return *this;
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    pair(key, 8).string(value);
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    pair(key, 9).number<uint32_t>(8).number<uint64_t>(values.size());
    for (const auto& value : values) pairs_.string(value);
    return *this;
  }
  // Begins a pair whose value is written by the caller.
  ByteWriter& pair(std::string_view key, uint32_t type) {
    ++num_pairs_;
    return pairs_.string(key).number(type);
  }
  // `dims`: innermost first, as the file has them.
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                      size_t num_bytes) {
    data_.pad_to(32);
    return tensor_at(name, type, dims, data_.bytes().size(), num_bytes);
  }
  GgufBuilder& tensor_at(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                         uint64_t offset, size_t num_bytes) {
    describe(name, type, dims, offset);
    for (size_t i = 0; i < num_bytes; ++i) data_.number(static_cast<uint8_t>(i * 7));
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                      std::span<const std::byte> bytes) {
    data_.pad_to(32);
    describe(name, type, dims, data_.bytes().size());
    data_.raw(bytes);
    return *this;
  }

  std::vector<std::byte> build(uint32_t version = 3) const {
    ByteWriter file;
    file.raw(std::string_view("GGUF")).number(version).number(num_tensors_).number(num_pairs_);
    file.raw(pairs_.bytes()).raw(infos_.bytes()).pad_to(32).raw(data_.bytes());
    return file.bytes();
  }

 private:
  void describe(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                uint64_t offset) {
    ++num_tensors_;
    infos_.string(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) infos_.number(dim);
    infos_.number(type).number(offset);
  }

  uint64_t num_pairs_ = 0;
  uint64_t num_tensors_ = 0;
  ByteWriter pairs_;
  ByteWriter infos_;
  ByteWriter data_;
};

// Metadata of a llama model of one layer.
inline GgufBuilder small_llama() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.context_length", 128)
      .u32("llama.embedding_length", 64)
      .u32("llama.feed_forward_length", 96)
      .u32("llama.attention.head_count", 4)
      .u32("llama.attention.head_count_kv", 2)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .f32("llama.rope.freq_base", 10000.0f)
      .u32("tokenizer.ggml.eos_token_id", 2)
      .strings("tokenizer.ggml.tokens", {"a", "b", "c"});
  return builder;
}

}  // namespace millrace::testing
