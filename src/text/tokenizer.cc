#include "text/tokenizer.h"

#include "base/describe_json.h"
#include "base/log.h"
#include "text/rust_text.h"

namespace millrace {

Tokenizer::Tokenizer(mrt_tokenizer* owned)
    : handle_(owned, [](mrt_tokenizer* tokenizer) { mrt_tokenizer_free(tokenizer); }) {}

Result<Tokenizer> Tokenizer::from_json(std::string_view json) {
  RustText error;
  mrt_tokenizer* handle = mrt_tokenizer_from_json(view_of(json), error.out());
  if (!handle) return fail("not a usable tokenizer.json: {}", one_short_line(error.str()));
  return Tokenizer(handle);
}

Result<Tokenizer> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  const auto check_size = [&](std::string_view name, size_t found) -> Result<> {
    if (found == 0 || found == vocabulary.tokens.size()) return {};
    return fail("tokenizer.ggml.{} has {} entries, tokenizer.ggml.tokens has {}: they must agree",
                name, found, vocabulary.tokens.size());
  };
  MR_TRY(check_size("token_type", vocabulary.token_types.size()));
  MR_TRY(check_size("scores", vocabulary.scores.size()));
  if (vocabulary.model == "gpt2" && (vocabulary.pre.empty() || vocabulary.pre == "default")) {
    log::warning(
        "the file does not name its pre-tokenizer (tokenizer.ggml.pre); token ids may be wrong");
  }

  const auto views = [](std::span<const std::string> texts) {
    std::vector<mrt_view> out;
    out.reserve(texts.size());
    for (const std::string& text : texts) out.push_back(view_of(text));
    return out;
  };
  const std::vector<mrt_view> tokens = views(vocabulary.tokens);
  const std::vector<mrt_view> merges = views(vocabulary.merges);
  mrt_gguf_vocabulary raw = {};
  raw.model = view_of(vocabulary.model);
  raw.pre = view_of(vocabulary.pre);
  raw.tokens = tokens.data();
  raw.num_tokens = tokens.size();
  raw.merges = merges.data();
  raw.num_merges = merges.size();
  raw.token_types = vocabulary.token_types.empty() ? nullptr : vocabulary.token_types.data();
  raw.scores = vocabulary.scores.empty() ? nullptr : vocabulary.scores.data();
  raw.add_space_prefix = vocabulary.add_space_prefix;

  RustText error;
  mrt_tokenizer* handle = mrt_tokenizer_from_gguf(&raw, error.out());
  if (!handle) return fail("not a usable vocabulary: {}", error.str());
  return Tokenizer(handle);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const int mode = options.special_text == SpecialText::kParse   ? MRT_PARSE_SPECIAL
                   : options.special_text == SpecialText::kPlain ? MRT_PLAIN_SPECIAL
                                                                 : MRT_PLAIN_ALL;
  if (text.size() > kMaxTextBytes) {
    return fail("cannot encode: found a text of {} bytes, expected at most {}; shorten or split it",
                text.size(), kMaxTextBytes);
  }
  RustIds ids;
  RustText error;
  if (mrt_tokenizer_encode(handle(), view_of(text), mode, options.add_special_tokens, ids.out(),
                           error.out())) {
    return fail("cannot encode: {}", error.str());
  }
  return ids.vec();
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                      bool skip_special_tokens) const {
  const std::vector<uint32_t> raw(ids.begin(), ids.end());
  RustText text;
  RustText error;
  if (mrt_tokenizer_decode(handle(), raw.data(), raw.size(), skip_special_tokens, text.out(),
                           error.out())) {
    return fail("cannot decode: {}", error.str());
  }
  return text.str();
}

int64_t Tokenizer::vocabulary_size() const {
  return static_cast<int64_t>(mrt_tokenizer_vocabulary_size(handle()));
}

int Tokenizer::flags(int32_t id) const {
  return id < 0 ? 0 : mrt_tokenizer_token_flags(handle(), static_cast<uint32_t>(id));
}

bool Tokenizer::is_special(int32_t id) const { return flags(id) & MRT_TOKEN_SPECIAL; }

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  uint32_t id = 0;
  if (mrt_tokenizer_token_id(handle(), view_of(token), &id)) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::string Tokenizer::piece(int32_t id) const {
  if (id < 0) return {};
  RustText piece;
  mrt_tokenizer_piece(handle(), static_cast<uint32_t>(id), piece.out());
  return piece.str();
}

std::string Tokenizer::token_bytes(int32_t id) const {
  if (id < 0) return {};
  RustText bytes;
  mrt_tokenizer_token_bytes(handle(), static_cast<uint32_t>(id), bytes.out());
  return bytes.str();
}

bool Tokenizer::strips_leading_space() const {
  return mrt_tokenizer_strips_leading_space(handle());
}

}  // namespace millrace
