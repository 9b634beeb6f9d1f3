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

enum class Architecture : uint8_t {
  kLlama,
  kQwen2,
  kQwen3,
  kQwen3Moe,
  kGlm4Moe,
  kDeepseekV3,
  kDeepseekV32,
  kGlmMoeDsa,
};

// "LlamaForCausalLM", ...
std::string_view name_of(Architecture architecture);

bool has_mla(Architecture architecture);
bool has_indexer(Architecture architecture);  // and MLA
bool has_experts(Architecture architecture);

enum class RopeType : uint8_t { kDefault, kLinear, kLlama3, kYarn };
std::string_view name_of(RopeType type);

// Least base of the rotary frequencies that is taken. At 1 all frequencies are the same, and YaRN
// divides by the base's logarithm.
inline constexpr double kLeastRopeTheta = 1.001;

// Rotary position embedding. Formulas: model documentation of each type.
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

// Multi-head latent attention (DeepSeek-V2, section 2.1). Lengths in elements.
struct MlaConfig {
  int q_lora_rank = 0;  // 0: q comes from the hidden state by one matrix
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;  // even; RopeConfig::rotary_dim is this
  int v_head_dim = 0;
  // (nope + rope)^-0.5, and under YaRN with mscale_all_dim times m(mscale_all_dim)^2.
  float softmax_scale = 0;

  int qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  // What is cached of a token: latent, then rope key.
  int row_size() const { return kv_lora_rank + qk_rope_head_dim; }
};

// The indexer of DeepSeek Sparse Attention (DeepSeek-V3.2, section 2.1).
struct IndexerConfig {
  int num_heads = 0;
  int head_dim = 0;          // the first qk_rope_head_dim elements of a head rotate
  int topk = 0;              // keys that a query attends to
  bool interleaved = false;  // RoPE of the indexer: as RopeConfig::interleaved
  // By layer, 1: has an indexer ("full"); 0: takes the selection of the nearest full layer before
  // it ("shared"). The first layer is full.
  std::vector<uint8_t> is_full;
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

// Mixture of experts.
struct MoeConfig {
  int num_experts = 0;
  int experts_per_token = 0;
  int intermediate_size = 0;         // of one routed expert
  int shared_intermediate_size = 0;  // of the shared expert: all of them side by side; 0: none
  RouterScore score = RouterScore::kSigmoid;
  bool correction_bias = false;  // added to the scores for the choice only
  int num_groups = 1;            // of consecutive experts; divides num_experts
  int topk_groups = 1;           // groups that experts are chosen from
  bool norm_topk_prob = false;
  float norm_epsilon = 0;  // added to the sum that norm_topk_prob divides by: 1e-20, or 0 (softmax)
  float routed_scaling_factor = 1;
  std::vector<uint8_t> is_sparse;  // by layer, 1: mixture of experts; 0: a dense MLP
};

enum class QuantizationMethod : uint8_t { kBlockFp8, kGptq, kAwq, kCompressedTensors };
// "fp8", "gptq", "awq", "compressed-tensors", as in config.json.
std::string_view name_of(QuantizationMethod method);

// How a Hugging Face checkpoint stores its quantised matrices. What follows from the tensors
// themselves is not here. GGUF files have none: there every tensor says its format. Of a matrix:
// - kBlockFp8: weight, E4M3 [out, in], times weight_scale_inv [out / block, in / block]
// - kGptq: qweight, qzeros, scales, g_idx in order of the groups (act-order is refused)
// - kAwq: qweight, qzeros, scales, in the "gemm" packing
// - kCompressedTensors ("pack-quantized"): weight_packed, weight_scale, weight_shape,
//   weight_zero_point
struct QuantizationConfig {
  QuantizationMethod method = QuantizationMethod::kBlockFp8;
  int block_rows = 0;  // kBlockFp8: outputs and
  int block_cols = 0;  // inputs that share a scale; the last blocks may be short
  int group_size = 0;  // 4-bit: inputs that share a scale, a multiple of 32
  // 4-bit: no zero points; a code c stands for (c - 8) * scale. GPTQ files hold qzeros regardless,
  // which then all say 8.
  bool symmetric = true;
  // kGptq: qzeros hold the zero point less 1 (checkpoint_format "gptq", not "gptq_v2").
  bool zeros_less_one = false;
  // Modules that are not quantised, as the file names them: a module's name or its prefix, a name
  // of a kind of module ("lm_head"), or "re:" and a regular expression. Tensors decide; this is for
  // messages.
  std::vector<std::string> not_converted;
};

// A decoder. Lengths in elements. Without `mla`, attention is grouped-query attention.
struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads; with MLA num_heads
  int head_dim = 0;      // need not be hidden_size / num_heads; with MLA qk_head_dim()
  float rms_norm_eps = 0;
  RopeConfig rope;
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q, k and v projections
  bool o_bias = false;    // output projection
  bool mlp_bias = false;  // gate, up and down projections
  bool qk_norm = false;   // RMS norm over head_dim of each head of q and of k, before RoPE
  std::optional<MlaConfig> mla;
  std::optional<IndexerConfig> indexer;  // only with mla
  std::optional<MoeConfig> moe;
  // Multi-token-prediction layers that the checkpoint holds after num_layers; not run here.
  int num_mtp_layers = 0;
  DType dtype = DType::kF32;                       // the type the checkpoint was published in
  std::optional<QuantizationConfig> quantization;  // of Hugging Face checkpoints
  std::vector<int64_t> eos_token_ids;              // ascending, may be empty
  std::optional<int64_t> bos_token_id;

  // heads x head_dim: rows of q_proj.
  int q_size() const { return num_heads * head_dim; }
  // heads x value dimension: columns of o_proj.
  int o_size() const { return num_heads * (mla ? mla->v_head_dim : head_dim); }
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
  bool has_expert_bias = false;   // an exp_probs_b.bias: the router's correction
  // By block up to the last: has ffn_gate_inp.weight (a router), indexer.attn_k.weight. Empty: not
  // known.
  std::vector<uint8_t> has_router;
  std::vector<uint8_t> has_indexer;
  DType dtype = DType::kF32;  // of the largest unquantised tensor
};

// Parses GGUF metadata (general.architecture llama, qwen2, qwen3, qwen3moe, glm4moe, deepseek2,
// deepseek32, glm-dsa). Errors as above.
Result<ModelConfig> parse_gguf_config(const GgufMetadata& metadata, const GgufTensorFacts& facts);

// Checks what every parser must ensure (ranges, divisibility); parsers call it.
Result<> validate(const ModelConfig& config);

}  // namespace millrace
