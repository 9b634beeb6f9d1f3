// Text <-> token ids, by the Hugging Face tokenizers library.
//
// A tokenizer comes from a tokenizer.json or from the vocabulary inside a GGUF file. It is
// immutable and cheap to copy (copies share it); any number of threads may use one at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

struct mrt_tokenizer;

namespace millrace {

// The vocabulary of a GGUF file, as its metadata gives it. Borrows the lists for the call.
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: gpt2 (byte-level BPE) or llama (SentencePiece)
  std::string pre;    // tokenizer.ggml.pre: splitting rules of gpt2; empty if the file has none
  std::span<const std::string> tokens;
  std::span<const std::string> merges;  // "left right", best first; gpt2 only
  std::span<const int32_t>
      token_types;                // one a token, or none: 2 unknown, 3 control, 4 user defined
  std::span<const float> scores;  // one a token; llama only
  bool add_space_prefix = true;   // llama: a space before the text
};

// How text that looks like an added token ("<|im_end|>") is read.
enum class SpecialText {
  kParse,         // every added token is recognised: for text of our own or of a template
  kPlain,         // special tokens are plain text; other added tokens are recognised
  kPlainAllAdded  // no added token is recognised
};

struct EncodeOptions {
  bool add_special_tokens = false;  // run the tokenizer's post-processor (BOS and the like)
  SpecialText special_text = SpecialText::kParse;
};

// Longest text that is encoded: far more than any context holds. Encoding takes more than a hundred
// times a text's bytes of memory.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;

class Tokenizer {
 public:
  // `json`: contents of tokenizer.json. Error: what is wrong in it; the file is not named.
  static Result<Tokenizer> from_json(std::string_view json);
  // Errors: unknown `model`, unknown `pre` (the message names the known ones), inconsistent lists.
  // A missing or "default" `pre` works by a guess and logs a warning.
  static Result<Tokenizer> from_gguf(const GgufVocabulary& vocabulary);

  // Errors: `text` is not UTF-8, or longer than kMaxTextBytes.
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of all `ids` at once; ids without a token vanish, bytes that form no character become
  // U+FFFD. For a stream of ids use Detokenizer.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // Highest id + 1. A model's logits may have more rows.
  int64_t vocabulary_size() const;
  bool is_special(int32_t id) const;
  std::optional<int32_t> token_id(std::string_view token) const;

  // The token as the vocabulary writes it ("Ġwater"); empty for an id without a token.
  std::string piece(int32_t id) const;
  // The bytes it stands for (" water"): not necessarily whole characters.
  std::string token_bytes(int32_t id) const;

  // True if decoding drops one space at the start of a text (SentencePiece).
  bool strips_leading_space() const;

  // The library's handle, for chat_template.cc.
  const mrt_tokenizer* handle() const { return handle_.get(); }

 private:
  explicit Tokenizer(mrt_tokenizer* owned);
  int flags(int32_t id) const;

  std::shared_ptr<const mrt_tokenizer> handle_;
};

}  // namespace millrace
