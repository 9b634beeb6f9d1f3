// Test helper: the golden text data of tests/data/text and the tokenizers that it was made with.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/mapped_file.h"
#include "text/rust_text.h"
#include "text/text_model.h"

namespace millrace::golden {

inline const std::string kFolder = MILLRACE_TEST_DATA "/text/";

inline std::string read_packed(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return {};
  }
  const std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()),
                               file->bytes().size());
  if (!path.ends_with(".gz")) return std::string(bytes);
  RustText text;
  RustText error;
  if (mrt_gunzip(view_of(bytes), size_t{1} << 30, text.out(), error.out())) {
    ADD_FAILURE() << path << ": " << error.str();
  }
  return text.str();
}

// The rows of NAME.jsonl.gz. Lines end with LF only.
inline std::vector<nlohmann::ordered_json> rows(const std::string& name) {
  const std::string text = read_packed(kFolder + name + ".jsonl.gz");
  std::vector<nlohmann::ordered_json> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) out.push_back(nlohmann::ordered_json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

// A golden tokenizer, opened once; null if its files are not there (llama3's licence forbids to
// ship them).
inline const TextModel* tokenizer(const std::string& name) {
  static std::map<std::string, std::optional<TextModel>> opened;
  const auto found = opened.find(name);
  if (found != opened.end()) return found->second ? &*found->second : nullptr;
  auto& slot = opened[name];
  auto model = TextModel::open(kFolder + "tokenizers/" + name);
  if (model) {
    slot = std::move(*model);
  } else if (name != "llama3") {
    ADD_FAILURE() << model.error().message;
  }
  return slot ? &*slot : nullptr;
}

// Says at the end of a test how many rows had no tokenizer.
class SkippedRows {
 public:
  ~SkippedRows() {
    if (count_ > 0) {
      printf("note: %d rows of llama3 skipped, its tokenizer is not in %stokenizers/llama3\n",
             count_, kFolder.c_str());
    }
  }
  void add() { ++count_; }

 private:
  int count_ = 0;
};

}  // namespace millrace::golden
