// What a model is: sizes, RoPE, biases, norms. Parsed from config.json (Hugging Face) or from GGUF
// metadata, and checked; pure, no I/O.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/gguf_metadata.h"
#include "tensor/dtype.h"

namespace millrace {

enum class Architecture : uint8_t { kLlama, kQwen2, kQwen3 };

// "LlamaForCausalLM", ...
std::string_view name_of(Architecture architecture);

enum class RopeType : uint8_t { kDefault, kLinear, kLlama3, kYarn };
std::string_view name_of(RopeType type);

// Least base of the rotary frequencies that is taken. At 1 all frequencies are the same, and YaRN
// divides by the base's logarithm.
inline constexpr double kLeastRopeTheta = 1.001;

// Rotary position embedding. Formulas: model documentation of each type; the goldens' notes.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  // Elements of a head that rotate: the first `rotary_dim`; even, at most head_dim.
  int rotary_dim = 0;
  // True: element 2i pairs with 2i + 1 (rows of GGUF llama models are stored for that). False: i
  // pairs with i + rotary_dim / 2.
  bool interleaved = false;
  double factor = 1.0;  // linear, llama3, yarn
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // llama3, yarn: the context length that the model was trained on before scaling.
  int64_t original_max_position = 0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  // Multiplies cos and sin; 1 unless yarn. Already resolved from mscale and mscale_all_dim.
  double attention_factor = 1.0;
  // GGUF's rope_freqs.weight: inv_freq[i] is divided by freq_divisors[i]; empty, or rotary_dim / 2
  // values. Used in place of type kLlama3, with type kDefault.
  std::vector<float> freq_divisors;
};

// A dense decoder with grouped-query attention. Lengths in elements.
struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // need not be hidden_size / num_heads
  float rms_norm_eps = 0;
  RopeConfig rope;
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;      // q, k and v projections
  bool o_bias = false;        // output projection
  bool mlp_bias = false;      // gate, up and down projections
  bool qk_norm = false;       // RMS norm over head_dim of each head of q and of k, before RoPE
  DType dtype = DType::kF32;  // the type the checkpoint was published in
  std::vector<int64_t> eos_token_ids;  // ascending, may be empty
  std::optional<int64_t> bos_token_id;

  // heads x head_dim: columns of o_proj, rows of q_proj.
  int q_size() const { return num_heads * head_dim; }
  // kv heads x head_dim: rows of k_proj and of v_proj.
  int kv_size() const { return num_kv_heads * head_dim; }
};

// Parses config.json. A field that is missing, of the wrong type or absurd is an error with field,
// found and expected; so is a field that may change the arithmetic and is not understood. Messages
// do not name the file.
Result<ModelConfig> parse_hf_config(const nlohmann::json& config);

// The ids in a field that holds a token, an array of tokens, or nothing (null, or a null pointer);
// ascending, each once.
Result<std::vector<int64_t>> parse_eos_token_ids(const nlohmann::json* field);

// Facts of a GGUF model that are not in its metadata.
struct GgufTensorFacts {
  std::vector<float> rope_freqs;  // contents of rope_freqs.weight; empty if absent
  bool has_output = false;        // output.weight exists: the head is not tied
  bool has_q_bias = false;        // blk.0.attn_q.bias
  bool has_o_bias = false;        // blk.0.attn_output.bias
  bool has_mlp_bias = false;      // blk.0.ffn_down.bias
  bool has_qk_norm = false;       // blk.0.attn_q_norm.weight
  int64_t embedding_rows = 0;     // rows of token_embd.weight; 0 if absent
  DType dtype = DType::kF32;      // of the largest unquantised tensor
};

// Parses GGUF metadata (general.architecture llama, qwen2, qwen3). Errors as above.
Result<ModelConfig> parse_gguf_config(const GgufMetadata& metadata, const GgufTensorFacts& facts);

// Checks what every parser must ensure (ranges, divisibility); parsers call it.
Result<> validate(const ModelConfig& config);

}  // namespace millrace
