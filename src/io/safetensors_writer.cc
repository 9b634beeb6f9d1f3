// Writing safetensors files.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "io/safetensors.h"

namespace millrace {
namespace {

constexpr size_t kHeaderAlignment = 8;

std::string_view stored_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "BOOL";
  }
  MR_CHECK(false, "bad dtype");
}

// Piece by piece, so that a large tensor can be stopped. An empty one has no address to write from.
bool put(std::FILE* file, const void* data, size_t bytes, const std::function<bool()>& stopped) {
  constexpr size_t kPiece = size_t{8} << 20;
  const char* from = static_cast<const char*>(data);
  for (size_t done = 0; done < bytes;) {
    if (stopped && stopped()) return false;
    const size_t piece = std::min(kPiece, bytes - done);
    if (std::fwrite(from + done, 1, piece, file) != piece) return false;
    done += piece;
  }
  return true;
}

}  // namespace

void SafetensorsWriter::add(const std::string& name, DType dtype, std::vector<int64_t> shape,
                            std::span<const std::byte> bytes) {
  int64_t expected = size_of(dtype);
  for (const int64_t dim : shape) expected *= dim;
  MR_CHECK(expected == static_cast<int64_t>(bytes.size()), "tensor {}: {} bytes, shape takes {}",
           name, bytes.size(), expected);
  const bool inserted =
      entries_.try_emplace(name, Entry{dtype, std::move(shape), {bytes.begin(), bytes.end()}})
          .second;
  MR_CHECK(inserted, "tensor {} was added before", name);
}

namespace {

// The file to replace: `path`, or what it links to. Devices, pipes and folders are not replaced.
Result<std::string> resolve_target(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return fail("the path of the file to write is empty");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return fail(
        "{}: is not a regular file; a safetensors file is written whole and cannot replace it",
        path);
  }
  // Step by step: the file at the end of the links need not be there yet.
  fs::path target = path;
  constexpr int kMostLinks = 40;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!fs::is_symlink(fs::symlink_status(target, error))) return target.string();
    const fs::path next = fs::read_symlink(target, error);
    if (error) return fail("{}: the link cannot be followed: {}", path, error.message());
    target = target.parent_path() / next;  // an absolute `next` replaces the whole path
  }
  return fail("{}: more than {} links, one to the next", path, kMostLinks);
}

}  // namespace

Result<> SafetensorsWriter::write(const std::string& path,
                                  const std::function<bool()>& stopped) const {
  // Widest elements first, so that every tensor is aligned to its elements.
  std::vector<std::pair<std::string, const Entry*>> order;
  order.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) order.emplace_back(name, &entry);
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) {
    return size_of(a.second->dtype) > size_of(b.second->dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t offset = 0;
  for (const auto& [name, entry] : order) {
    const int64_t end = offset + static_cast<int64_t>(entry->bytes.size());
    header[name] = {{"dtype", stored_name(entry->dtype)},
                    {"shape", entry->shape},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  // A name that is no UTF-8 is written with replacement characters instead of throwing.
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  unsigned char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(text.size() >> (8 * i));

  MR_ASSIGN(const std::string target, resolve_target(path));
  const std::string partial = partial_name(target);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(partial.c_str(), "wb"),
                                                       &std::fclose);
  if (!file) return fail("{}: cannot be written: {}", path, std::strerror(errno));
  bool ok = put(file.get(), length, sizeof length, stopped) &&
            put(file.get(), text.data(), text.size(), stopped);
  for (const auto& [name, entry] : order) {
    ok = ok && put(file.get(), entry->bytes.data(), entry->bytes.size(), stopped);
  }
  ok = std::fclose(file.release()) == 0 && ok;
  ok = ok && std::rename(partial.c_str(), target.c_str()) == 0;
  if (!ok) {
    const int error = errno;
    std::remove(partial.c_str());
    if (stopped && stopped()) return fail("stopped; {} is not written", path);
    return fail("{}: cannot be written: {}", path, std::strerror(error));
  }
  return {};
}

}  // namespace millrace
