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


model("formats", "llama", every_format)
model("yarn", "qwen2", yarn)
model("bare", "qwen3", lambda w: None)

base = {"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 192,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 384, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
        "hidden_act": "silu", "eos_token_id": [1, 2], "dtype": "bfloat16", "head_dim": 16}
configs = {
    "flat": {"rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": True},
    "llama3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                   "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 64}},
    "yarn": {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False,
             "layer_types": ["full_attention"] * 4, "use_sliding_window": False,
             "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5,
                              "beta_fast": 32, "beta_slow": 1}},
}
for name, more in configs.items():
    with open(f"{out}/config/{name}.json", "w") as f:
        json.dump({**base, **more}, f, indent=1)
