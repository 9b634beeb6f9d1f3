"""Writes the seeds that the fuzz tests mutate: small valid files of each kind.

Usage: python make_corpus.py OUT  (needs numpy, gguf and safetensors)
"""
import json
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

out = sys.argv[1]
rng = np.random.default_rng(5)

save_file({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3, dtype=np.int8),
           "c": np.zeros((0, 4), np.float16)}, f"{out}/safetensors/types.safetensors",
          metadata={"format": "pt"})
save_file({f"model.layers.{i}.w": np.full((2, 2), i, np.float16) for i in range(5)},
          f"{out}/safetensors/layers.safetensors")


def model(name, arch, extra):
    w = gguf.GGUFWriter(f"{out}/gguf/{name}.gguf", arch)
    w.add_block_count(1)
    w.add_context_length(128)
    w.add_embedding_length(256)
    w.add_feed_forward_length(256)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(["a", "b", "c", "<s>"])
    w.add_token_types([1, 1, 1, 3])
    w.add_eos_token_id(3)
    extra(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def every_format(w):
    w.add_tensor("rope_freqs.weight", np.ones(32, np.float32))
    for qtype in (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K):
        block, size = gguf.GGML_QUANT_SIZES[qtype]
        raw = rng.integers(0, 256, (1, 256 // block * size), dtype=np.uint8)
        w.add_tensor(f"w.{qtype.name}", raw, raw_dtype=qtype)
    w.add_tensor("token_embd.weight", np.zeros((4, 4), np.float16))


def yarn(w):
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(4.0)
    w.add_rope_scaling_orig_ctx_len(32)
    w.add_array("general.tags", ["x", "y"])
    w.add_bool("general.flag", True)
    w.add_int64("general.big", -5)
    w.add_float64("general.double", 0.25)
    w.add_uint8("general.small", 9)
    w.add_array("general.nested", [[1, 2], [3, 4]])
    w.add_tensor("output.weight", np.ones((4, 8), np.float32))


def sparse(w):
    w.add_nextn_predict_layers(0)
    w.add_q_lora_rank(32)
    w.add_kv_lora_rank(32)
    w.add_key_length(48)
    w.add_value_length(32)
    w.add_key_length_mla(40)
    w.add_value_length_mla(24)
    w.add_rope_dimension_count(16)
    w.add_uint32("glm-dsa.attention.indexer.head_count", 4)
    w.add_uint32("glm-dsa.attention.indexer.key_length", 32)
    w.add_uint32("glm-dsa.attention.indexer.top_k", 16)
    w.add_array("glm-dsa.attention.indexer.types", [True])
    w.add_expert_count(8)
    w.add_expert_used_count(2)
    w.add_expert_feed_forward_length(32)
    w.add_expert_shared_count(1)
    w.add_expert_group_count(4)
    w.add_expert_group_used_count(2)
    w.add_expert_weights_scale(2.5)
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_leading_dense_block_count(0)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(4.0)
    w.add_rope_scaling_orig_ctx_len(32)
    w.add_rope_scaling_yarn_log_mul(0.1)
    w.add_tensor("blk.0.indexer.attn_k.weight", np.ones((32, 8), np.float32))


model("formats", "llama", every_format)
model("sparse", "glm-dsa", sparse)
model("yarn", "qwen2", yarn)
model("bare", "qwen3", lambda w: None)

base = {"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 192,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 384, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
        "hidden_act": "silu", "eos_token_id": [1, 2], "dtype": "bfloat16", "head_dim": 16}
experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
           "norm_topk_prob": True, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
           "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
           "num_nextn_predict_layers": 1}
latent = {**experts, "architectures": ["GlmMoeDsaForCausalLM"], "num_key_value_heads": 8,
          "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
          "v_head_dim": 24, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 16}
configs = {
    "flat": {"rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": True},
    "llama3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                   "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 64}},
    "yarn": {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False,
             "layer_types": ["full_attention"] * 4, "use_sliding_window": False,
             "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5,
                              "beta_fast": 32, "beta_slow": 1}},
    "shared_fp8": {**latent, "indexer_types": ["full", "full", "shared", "full"],
                   "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
                   "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
                   "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                           "weight_block_size": [128, 128],
                                           "modules_to_not_convert": ["lm_head"]}},
    "schedule_int4": {**latent, "architectures": ["DeepseekV32ForCausalLM"], "index_topk_freq": 1,
                      "first_k_dense_replace": 1, "moe_layer_freq": 1,
                      "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0,
                                       "mscale_all_dim": 1.0},
                      "quantization_config": {
                          "quant_method": "compressed-tensors", "format": "pack-quantized",
                          "ignore": ["lm_head"],
                          "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                              "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                              "symmetric": True}}}}},
    "experts_awq": {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8,
                    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
                    "mlp_only_layers": [1], "decoder_sparse_step": 1,
                    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32,
                                            "zero_point": True, "version": "gemm"}},
    "experts_gptq": {"architectures": ["Glm4MoeForCausalLM"], "use_qk_norm": True,
                     "partial_rotary_factor": 0.5, "first_k_dense_replace": 1, **experts,
                     "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
                                             "desc_act": False, "sym": True,
                                             "dynamic": {"-:.*gate": {}}}},
}
for name, more in configs.items():
    with open(f"{out}/config/{name}.json", "w") as f:
        json.dump({**base, **more}, f, indent=1)
