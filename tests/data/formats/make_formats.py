"""Writes tests/data/formats/<NAME>.bin for each weight format: 3 random blocks as bytes, then the
float32 values that the gguf package's dequantize gives for them.

Usage: python make_formats.py OUT  (needs numpy and gguf)
"""
import sys
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T

out = sys.argv[1]
rng = np.random.default_rng(7)
# Byte offsets of halves in a block: kept finite, so that comparing bits is meaningful.
halves = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "F16": [0], "BF16": []}
for name, offsets in halves.items():
    qtype = T[name]
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    count = 3 if block > 1 else 96
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in offsets:
        h = (rng.standard_normal(count) * 0.05).astype(np.float16)
        raw[:, offset:offset + 2] = h.view(np.uint8).reshape(count, 2)
    if name == "BF16":
        values = rng.standard_normal(count).astype(np.float32)
        raw = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(count, 2)
    values = gguf.quants.dequantize(raw.reshape(-1), qtype).astype(np.float32)
    assert values.size == count * block
    with open(f"{out}/{name}.bin", "wb") as f:
        f.write(raw.tobytes())
        f.write(values.tobytes())
