// C interface of the Rust text library: tokenizers and chat templates.
//
// Rules for every function here:
// - Text is UTF-8 with a length, never NUL-terminated.
// - A handle returned by *_new / *_from_* belongs to the caller and goes back to its *_free.
// - mrt_text and mrt_ids results belong to the caller: mrt_text_free, mrt_ids_free. They are
//   written on success only; `error` is written on failure only.
// - Functions that can fail return 0 on success (or a null handle on failure). A panic inside the
//   library is such a failure; nothing unwinds into the caller.
// - Handles are immutable after creation: any number of threads may use one at once.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mrt_tokenizer mrt_tokenizer;
typedef struct mrt_template mrt_template;

// Borrowed text. `data` may be null when `size` is 0.
typedef struct {
  const char* data;
  size_t size;
} mrt_view;

// Owned text.
typedef struct {
  char* data;
  size_t size;
  size_t capacity;
} mrt_text;

// Owned token ids.
typedef struct {
  uint32_t* data;
  size_t size;
  size_t capacity;
} mrt_ids;

void mrt_text_free(mrt_text text);
void mrt_ids_free(mrt_ids ids);

// The vocabulary of a GGUF file, borrowed for the call. `model` is "gpt2" or "llama"; `pre` names
// the splitting rules of a gpt2 vocabulary ("" means default). token_types and scores have
// num_tokens entries or are null.
typedef struct {
  mrt_view model;
  mrt_view pre;
  const mrt_view* tokens;
  size_t num_tokens;
  const mrt_view* merges;
  size_t num_merges;
  const int32_t* token_types;
  const float* scores;
  int32_t add_space_prefix;
} mrt_gguf_vocabulary;

// How text that looks like an added token is read.
enum {
  MRT_PARSE_SPECIAL = 0,  // every added token is recognised
  MRT_PLAIN_SPECIAL = 1,  // special ones are plain text, other added tokens are recognised
  MRT_PLAIN_ALL = 2,      // no added token is recognised
};

// Facts about a token id, as bits.
enum {
  MRT_TOKEN_EXISTS = 1,
  MRT_TOKEN_ADDED = 2,
  MRT_TOKEN_SPECIAL = 4,
};

mrt_tokenizer* mrt_tokenizer_from_json(mrt_view json, mrt_text* error);
mrt_tokenizer* mrt_tokenizer_from_gguf(const mrt_gguf_vocabulary* vocabulary, mrt_text* error);
void mrt_tokenizer_free(mrt_tokenizer* tokenizer);

// Text -> ids. add_special_tokens != 0 runs the tokenizer's post-processor (BOS and the like).
int mrt_tokenizer_encode(const mrt_tokenizer* tokenizer, mrt_view text, int mode,
                         int add_special_tokens, mrt_ids* ids, mrt_text* error);

// Ids -> text, as the Hugging Face library decodes; ids without a token vanish.
int mrt_tokenizer_decode(const mrt_tokenizer* tokenizer, const uint32_t* ids, size_t num_ids,
                         int skip_special_tokens, mrt_text* text, mrt_text* error);

// Highest id + 1.
size_t mrt_tokenizer_vocabulary_size(const mrt_tokenizer* tokenizer);
// MRT_TOKEN_* bits; 0 for an id without a token.
int mrt_tokenizer_token_flags(const mrt_tokenizer* tokenizer, uint32_t id);
// Returns 0 and the id, or 1 if no token has exactly this text.
int mrt_tokenizer_token_id(const mrt_tokenizer* tokenizer, mrt_view token, uint32_t* id);
// The token as the vocabulary writes it (byte-level characters and all); empty without a token.
void mrt_tokenizer_piece(const mrt_tokenizer* tokenizer, uint32_t id, mrt_text* piece);
// The bytes that the token stands for, not necessarily whole characters.
void mrt_tokenizer_token_bytes(const mrt_tokenizer* tokenizer, uint32_t id, mrt_text* bytes);
// True if decoding drops one space at the start of a text (SentencePiece).
int mrt_tokenizer_strips_leading_space(const mrt_tokenizer* tokenizer);

mrt_template* mrt_template_new(mrt_view source, mrt_text* error);
void mrt_template_free(mrt_template* chat_template);

// Renders a chat. `request` is JSON: {"messages": [...], "tools": [...] or null,
// "add_generation_prompt": bool, "variables": {...}, "special_tokens": {"bos_token": ...},
// "keep_nulls": bool}; variables go before special tokens of the same name. `now` is the time that
// strftime_now shows, in seconds since the epoch.
int mrt_template_render(const mrt_template* chat_template, mrt_view request, int64_t now,
                        mrt_text* text, mrt_text* error);

// Renders and encodes a chat so that control-token text inside the caller's strings stays text.
int mrt_template_encode(const mrt_template* chat_template, const mrt_tokenizer* tokenizer,
                        mrt_view request, int64_t now, mrt_ids* ids, mrt_text* error);

// Unpacks gzip data of at most `limit` bytes unpacked.
int mrt_gunzip(mrt_view packed, size_t limit, mrt_text* unpacked, mrt_text* error);

#ifdef __cplusplus
}
#endif
