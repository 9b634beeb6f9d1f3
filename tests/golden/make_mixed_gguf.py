"""Makes tests/data/golden/mixed_formats: a tiny Llama whose matrices are in all weight formats.

    python make_mixed_gguf.py OUT_FOLDER      (needs numpy, gguf, safetensors)

model.gguf holds random weights, one format per matrix. expected.safetensors holds, for each prompt
i, ids_i, logits_i and 16 greedy_i, computed here in float64 from the weights as the `gguf` package
dequantises them. GGUF llama files keep q and k rows for interleaved RoPE.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 256, 2, 4, 2, 64, 512, 320
EPS, THETA = 1e-5, 10000.0
T = gguf.GGMLQuantizationType
LAYER_FORMATS = [
    dict(attn_q=T.Q4_0, attn_k=T.Q4_1, attn_v=T.Q5_0, attn_output=T.Q5_1,
         ffn_gate=T.Q8_0, ffn_up=T.Q8_0, ffn_down=T.Q4_K),
    dict(attn_q=T.Q5_K, attn_k=T.F16, attn_v=T.Q6_K, attn_output=T.Q6_K,
         ffn_gate=T.Q4_K, ffn_up=T.Q6_K, ffn_down=T.BF16),
]
SHAPES = dict(attn_q=(HEADS * HEAD_DIM, HIDDEN), attn_k=(KV_HEADS * HEAD_DIM, HIDDEN),
              attn_v=(KV_HEADS * HEAD_DIM, HIDDEN), attn_output=(HIDDEN, HEADS * HEAD_DIM),
              ffn_gate=(FFN, HIDDEN), ffn_up=(FFN, HIDDEN), ffn_down=(HIDDEN, FFN))
rng = np.random.default_rng(7)


def half(values):
    return np.asarray(values, dtype=np.float16).view(np.uint8)


def k_quant_blocks(fmt, rows, columns):
    """Random super-blocks: any byte is a valid code, only the block's scales must be sane."""
    block, size = gguf.GGML_QUANT_SIZES[fmt]
    data = rng.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    count = data.shape[0]
    base = {T.Q4_K: 4e-4, T.Q5_K: 2e-4, T.Q6_K: 4e-5}[fmt]
    d = base * rng.uniform(0.8, 1.2, (count, 1))
    if fmt == T.Q6_K:
        data[:, -2:] = half(d)
    else:
        mean_code = 7.5 if fmt == T.Q4_K else 15.5
        data[:, 0:2] = half(d)
        data[:, 2:4] = half(d * mean_code)
    return data.reshape(rows, -1)


def make_matrix(fmt, shape):
    if fmt in (T.Q4_K, T.Q5_K, T.Q6_K):
        return k_quant_blocks(fmt, *shape)
    values = rng.normal(0, 1.2 / np.sqrt(shape[1]), shape).astype(np.float32)
    return gguf.quantize(values, fmt)


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def rope(x, positions):
    """x [tokens, heads, HEAD_DIM]; element 2i pairs with 2i + 1."""
    inv = THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angle = positions[:, None, None] * inv
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    out[..., 1::2] = odd * np.cos(angle) + even * np.sin(angle)
    return out


def forward(w, ids):
    n = len(ids)
    positions = np.arange(n)
    x = w["token_embd"][ids]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(LAYERS):
        h = rms_norm(x, w[f"{i}.attn_norm"])
        q = rope((h @ w[f"{i}.attn_q"].T).reshape(n, HEADS, HEAD_DIM), positions)
        k = rope((h @ w[f"{i}.attn_k"].T).reshape(n, KV_HEADS, HEAD_DIM), positions)
        v = (h @ w[f"{i}.attn_v"].T).reshape(n, KV_HEADS, HEAD_DIM)
        out = np.empty((n, HEADS, HEAD_DIM))
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            scores = q[:, head] @ k[:, kv].T / np.sqrt(HEAD_DIM) + mask
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, kv]
        x = x + out.reshape(n, -1) @ w[f"{i}.attn_output"].T
        h = rms_norm(x, w[f"{i}.ffn_norm"])
        gate = h @ w[f"{i}.ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{i}.ffn_up"].T)) @ w[f"{i}.ffn_down"].T
    return rms_norm(x, w["output_norm"]) @ w["output"].T


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(THETA)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_vocab_size(VOCAB)
    w = {}

    def add(name, key, data, fmt):
        writer.add_tensor(name, data, raw_dtype=fmt)
        w[key] = gguf.dequantize(data, fmt).astype(np.float64)

    add("token_embd.weight", "token_embd", make_matrix(T.Q8_0, (VOCAB, HIDDEN)), T.Q8_0)
    for i, formats in enumerate(LAYER_FORMATS):
        for norm in ("attn_norm", "ffn_norm"):
            values = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
            add(f"blk.{i}.{norm}.weight", f"{i}.{norm}", values, T.F32)
        for name, fmt in formats.items():
            add(f"blk.{i}.{name}.weight", f"{i}.{name}", make_matrix(fmt, SHAPES[name]), fmt)
    add("output_norm.weight", "output_norm", rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32),
        T.F32)
    # The embedding above has rows of norm about 1.2: the head is scaled so that logits spread.
    head = gguf.quantize(rng.normal(0, 3 / np.sqrt(HIDDEN), (VOCAB, HIDDEN)).astype(np.float32),
                         T.Q4_1)
    add("output.weight", "output", head, T.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    expected = {}
    for i, length in enumerate((1, 7, 33, 70)):
        ids = rng.integers(2, VOCAB, length)
        expected[f"ids_{i}"] = ids.astype(np.int32)
        expected[f"logits_{i}"] = forward(w, ids).astype(np.float32)
        greedy, sequence, margin = [], list(ids), np.inf
        for _ in range(16):
            last = np.sort(forward(w, np.array(sequence))[-1])
            margin = min(margin, last[-1] - last[-2])
            greedy.append(int(forward(w, np.array(sequence))[-1].argmax()))
            sequence.append(greedy[-1])
        expected[f"greedy_{i}"] = np.array(greedy, dtype=np.int32)
        print(f"prompt {i}: {length} tokens, logits std {expected[f'logits_{i}'].std():.2f}, "
              f"least greedy margin {margin:.4f}")
    save_file(expected, folder / "expected.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
