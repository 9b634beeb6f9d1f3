#!/usr/bin/env python3
"""Makes a random GGUF model with the attention of GLM-5.2 and little else, to time attention with.

    bench/make_glm_dsa.py [--out FOLDER] [--heads 16 64]

Latent attention and indexer have the published shapes (latent 512, rotary 64, 192 + 64 per query head,
values of 256, an indexer of 32 heads of 128, 2,048 selected keys); the rest is small: hidden size 1024,
two layers (the first dense, the second of 16 experts, 4 of them used, and a shared one), an indexer on
each. Matrices are Q8_0, norms and the router f32; keys and tensors are named as llama.cpp's converter
names them, so that any engine that knows `glm-dsa` can load the file. Its answers mean nothing. Files that
exist are left alone.
"""

import argparse
import sys
from pathlib import Path

import make_bench_models
import peer_setup

HEADS = (16, 64)  # GLM-5.2 has 64
HIDDEN, LAYERS, DENSE_LAYERS, FFN = 1024, 2, 1, 4096
EXPERTS, EXPERTS_USED, SHARED_EXPERTS, EXPERT_FFN = 16, 4, 1, 512
Q_LORA, KV_LORA, NOPE, ROPE, VALUE = 512, 512, 192, 64, 256
INDEX_HEADS, INDEX_DIM, INDEX_TOPK = 32, 128, 2048
VOCABULARY, CONTEXT = 32000, 202752
ROUTER_SCALE = 2.5
FORMAT = "Q8_0"


def name_of(heads):
    return f"glm-dsa-{heads}-q8_0"


NAMES = [name_of(heads) for heads in HEADS]


def add_metadata(out, reader, heads):
    import gguf
    out.add_name(f"Random GLM-DSA, {heads} heads, {FORMAT}")
    out.add_file_type(make_bench_models.FILE_TYPES[FORMAT])
    out.add_block_count(LAYERS)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(FFN)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(VOCABULARY)
    # The cache of latent attention is that of one shared key of latent and rotary part.
    out.add_head_count(heads)
    out.add_head_count_kv(1)
    out.add_q_lora_rank(Q_LORA)
    out.add_kv_lora_rank(KV_LORA)
    out.add_key_length(KV_LORA + ROPE)
    out.add_value_length(KV_LORA)
    out.add_key_length_mla(NOPE + ROPE)
    out.add_value_length_mla(VALUE)
    out.add_rope_dimension_count(ROPE)
    out.add_rope_freq_base(1000000.0)
    out.add_indexer_head_count(INDEX_HEADS)
    out.add_indexer_key_length(INDEX_DIM)
    out.add_indexer_top_k(INDEX_TOPK)
    out.add_leading_dense_block_count(DENSE_LAYERS)
    out.add_expert_count(EXPERTS)
    out.add_expert_used_count(EXPERTS_USED)
    out.add_expert_shared_count(SHARED_EXPERTS)
    out.add_expert_feed_forward_length(EXPERT_FFN)
    out.add_expert_weights_scale(ROUTER_SCALE)
    out.add_expert_weights_norm(True)
    out.add_expert_group_count(1)
    out.add_expert_group_used_count(1)
    out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    make_bench_models.add_vocabulary(out, reader, VOCABULARY)


class Tensors:
    """Adds random tensors to a file."""

    def __init__(self, writer):
        import gguf
        import numpy as np
        self.writer, self.random = writer, np.random.default_rng(1)
        self.kind, self.f32 = gguf.GGMLQuantizationType[FORMAT], gguf.GGMLQuantizationType.F32

    def matrix(self, name, *shape):
        """Q8_0, slowest axis first; values about as large as keep a unit vector's size."""
        deviation = shape[-1] ** -0.5
        self.writer.add(f"{name}.weight", shape, self.kind,
                        lambda: make_bench_models.random_blocks(self.random, shape, FORMAT, deviation))

    def plain(self, name, make, *shape):
        """f32; make(shape) gives the values."""
        import numpy as np
        self.writer.add(name, shape, self.f32, lambda: make(shape).astype(np.float32).view(np.uint8))

    def norm(self, name, size):
        import numpy as np
        self.plain(f"{name}.weight", np.ones, size)


def add_attention(add, block, heads):
    import numpy as np
    add.norm(f"{block}.attn_norm", HIDDEN)
    add.matrix(f"{block}.attn_q_a", Q_LORA, HIDDEN)
    add.norm(f"{block}.attn_q_a_norm", Q_LORA)
    add.matrix(f"{block}.attn_q_b", heads * (NOPE + ROPE), Q_LORA)
    add.matrix(f"{block}.attn_kv_a_mqa", KV_LORA + ROPE, HIDDEN)
    add.norm(f"{block}.attn_kv_a_norm", KV_LORA)
    add.matrix(f"{block}.attn_k_b", heads, KV_LORA, NOPE)
    add.matrix(f"{block}.attn_v_b", heads, VALUE, KV_LORA)
    add.matrix(f"{block}.attn_output", HIDDEN, heads * VALUE)
    add.norm(f"{block}.indexer.k_norm", INDEX_DIM)
    add.plain(f"{block}.indexer.k_norm.bias", np.zeros, INDEX_DIM)
    add.matrix(f"{block}.indexer.proj", INDEX_HEADS, HIDDEN)
    add.matrix(f"{block}.indexer.attn_k", INDEX_DIM, HIDDEN)
    add.matrix(f"{block}.indexer.attn_q_b", INDEX_HEADS * INDEX_DIM, Q_LORA)


def add_experts(add, block):
    import numpy as np
    deviation = HIDDEN ** -0.5
    add.plain(f"{block}.ffn_gate_inp.weight", lambda shape: add.random.normal(0, deviation, shape),
              EXPERTS, HIDDEN)
    add.plain(f"{block}.exp_probs_b.bias", np.zeros, EXPERTS)
    for kind, count, inner in (("exps", EXPERTS, EXPERT_FFN), ("shexp", None, SHARED_EXPERTS * EXPERT_FFN)):
        lead = () if count is None else (count,)
        add.matrix(f"{block}.ffn_gate_{kind}", *lead, inner, HIDDEN)
        add.matrix(f"{block}.ffn_up_{kind}", *lead, inner, HIDDEN)
        add.matrix(f"{block}.ffn_down_{kind}", *lead, HIDDEN, inner)


def make_model(vocabulary_source, target, heads):
    """Writes the model; the vocabulary is the beginning of that of `vocabulary_source`."""
    import gguf
    writer = make_bench_models.Writer(target, "glm-dsa")
    add_metadata(writer.gguf, gguf.GGUFReader(vocabulary_source), heads)
    add = Tensors(writer)
    add.matrix("token_embd", VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add_attention(add, block, heads)
        add.norm(f"{block}.ffn_norm", HIDDEN)
        if layer < DENSE_LAYERS:
            add.matrix(f"{block}.ffn_gate", FFN, HIDDEN)
            add.matrix(f"{block}.ffn_up", FFN, HIDDEN)
            add.matrix(f"{block}.ffn_down", HIDDEN, FFN)
        else:
            add_experts(add, block)
    add.norm("output_norm", HIDDEN)
    add.matrix("output", VOCABULARY, HIDDEN)
    writer.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=peer_setup.bench_models_folder(),
                        help="where the files go (default: %(default)s)")
    parser.add_argument("--heads", nargs="+", type=int, choices=HEADS, default=HEADS, metavar="N",
                        help="attention heads, a file for each: 16, 64 (GLM-5.2's)")
    parser.add_argument("--smollm2", type=Path, help="SmolLM2 in Q4_1 (default: where ./dev setup puts it)")
    peer_setup.add_venv_option(parser)
    arguments = parser.parse_args()
    files = {heads: make_bench_models.model_file(name_of(heads), arguments.out) for heads in arguments.heads}
    missing = {heads: file for heads, file in files.items() if not file.exists()}
    if not missing:
        return
    source = arguments.smollm2 or peer_setup.find_smollm2()
    peer_setup.run_inside_venv(arguments.venv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for heads, file in missing.items():
        peer_setup.say(f"writing {file}")
        make_model(source, file, heads)


if __name__ == "__main__":
    sys.exit(main())
