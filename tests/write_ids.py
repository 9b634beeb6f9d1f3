#!/usr/bin/env python3
"""write_ids.py FILE TENSOR ID...: a safetensors file with one tensor of token ids, as `millrace forward` reads it.

An ID may be FROM..TO, both included, or IDxCOUNT.
"""

import json
import struct
import sys


def ids_of(text):
    if ".." in text:
        first, last = map(int, text.split(".."))
        return list(range(first, last + 1))
    token, _, count = text.partition("x")
    return [int(token)] * int(count or 1)


path, tensor, *texts = sys.argv[1:]
ids = [token for text in texts for token in ids_of(text)]
header = json.dumps({tensor: {"dtype": "I32", "shape": [len(ids)], "data_offsets": [0, 4 * len(ids)]}}).encode()
with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(ids)}i", *ids))
