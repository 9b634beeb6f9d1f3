#!/usr/bin/env python3
"""Makes the model files of the comparisons with other engines.

    bench/make_bench_models.py [--out FOLDER] [--only NAME ...]

From SmolLM2-135M-Instruct (Q4_1, the model that ./dev setup fetches) it makes the same model in
Q8_0, F16 and BF16: every matrix is expanded exactly to float32 and quantised again, the norms stay
float32, the metadata is kept. It also makes a random model of 1.2 billion parameters in the shape
of Llama, in Q4_0 and Q8_0, whose blocks are drawn at random instead of being quantised. Its answers
mean nothing, but it has a tokenizer and any engine can load it. Files that exist are left alone.
"""

import argparse
import os
import sys
from pathlib import Path

import peer_setup

SMOLLM2_FORMATS = {"smollm2-q8_0": "Q8_0", "smollm2-f16": "F16", "smollm2-bf16": "BF16"}
RANDOM_FORMATS = {"llama-1b-q4_0": "Q4_0", "llama-1b-q8_0": "Q8_0"}
NAMES = [*SMOLLM2_FORMATS, *RANDOM_FORMATS]
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}  # general.file_type

HIDDEN, LAYERS, HEADS, KV_HEADS, FFN, VOCABULARY = 2048, 24, 32, 8, 5632, 32000
CONTEXT = 8192
BLOCK = 32  # values in a block of Q4_0 and of Q8_0


def model_file(name, folder):
    """The file of a model of NAMES."""
    return Path(folder) / f"{name}.gguf"


class Writer:
    """Writes one GGUF file tensor by tensor, so that only one is in memory at a time.

    The file appears under its name when it is whole.
    """

    def __init__(self, path, architecture):
        import gguf
        self.path, self.partial = path, path.with_suffix(".partial")
        self.gguf = gguf.GGUFWriter(self.partial, architecture)
        self.tensors = []

    def add(self, name, shape, kind, make):
        """Adds a tensor of `shape` (slowest axis first); make() returns its bytes as an array."""
        import gguf
        import numpy as np
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = shape[-1] // block * size
        byte_shape = (*shape[:-1], row_bytes)
        self.gguf.add_tensor_info(name, byte_shape, np.dtype(np.uint8), int(np.prod(byte_shape)), kind)
        self.tensors.append(make)

    def write(self):
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_ti_data_to_file()
        for make in self.tensors:
            self.gguf.write_tensor_data(make())
        self.gguf.close()
        os.replace(self.partial, self.path)


def copy_metadata(reader, writer, replaced):
    """Copies all metadata, with the values of `replaced` in place of the file's."""
    import gguf
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.gguf.add_key_value(field.name, replaced.get(field.name, field.contents()), kind, sub_type)


def requantise(source, target, format_name):
    """Writes the model of `source` with all its matrices in another format."""
    import gguf
    import numpy as np
    reader = gguf.GGUFReader(source)
    kind = gguf.GGMLQuantizationType[format_name]
    writer = Writer(target, reader.get_field("general.architecture").contents())
    copy_metadata(reader, writer, {"general.file_type": FILE_TYPES[format_name]})

    def convert(tensor, to):
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.ascontiguousarray(gguf.quants.quantize(values, to)).view(np.uint8)

    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        to = gguf.GGMLQuantizationType.F32 if len(shape) == 1 else kind
        writer.add(tensor.name, shape, to, lambda tensor=tensor, to=to: convert(tensor, to))
    writer.write()


def small_vocabulary(reader, size):
    """The first `size` tokens of a byte-level BPE vocabulary, their types, and the merges among them."""
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()[:size]
    types = reader.get_field("tokenizer.ggml.token_type").contents()[:size]
    known = set(tokens)
    merges = []
    for merge in reader.get_field("tokenizer.ggml.merges").contents():
        left, right = merge.split(" ")
        if left in known and right in known and left + right in known:
            merges.append(merge)
    return tokens, types, merges


def random_blocks(random, shape, format_name, deviation):
    """Random blocks of Q4_0 or Q8_0 whose values have about the given standard deviation."""
    import numpy as np
    data_bytes, spread = {"Q4_0": (16, 4.6), "Q8_0": (32, 74.0)}[format_name]
    count = int(np.prod(shape)) // BLOCK
    blocks = np.empty((count, 2 + data_bytes), np.uint8)
    scales = random.uniform(0.8, 1.2, count).astype(np.float32) * np.float32(deviation / spread)
    blocks[:, :2] = scales.astype(np.float16).view(np.uint8).reshape(count, 2)
    blocks[:, 2:] = random.integers(0, 256, (count, data_bytes), np.uint8)
    if format_name == "Q8_0":  # a quantiser never writes -128, and kernels may rely on it
        blocks[:, 2:][blocks[:, 2:] == 0x80] = 0x81
    return blocks.reshape(*shape[:-1], -1)


def add_vocabulary(out, reader, size):
    """The tokenizer of a random model: the beginning of the vocabulary of the file of `reader`."""
    tokens, types, merges = small_vocabulary(reader, size)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(False)


def add_random_metadata(writer, reader, format_name):
    out = writer.gguf
    out.add_name(f"Random Llama 1.2B {format_name}")
    out.add_file_type(FILE_TYPES[format_name])
    out.add_block_count(LAYERS)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(FFN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(10000.0)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_vocab_size(VOCABULARY)
    add_vocabulary(out, reader, VOCABULARY)


def random_model(vocabulary_source, target, format_name):
    """Writes the random model; the vocabulary is the beginning of that of `vocabulary_source`."""
    import gguf
    import numpy as np
    reader = gguf.GGUFReader(vocabulary_source)
    writer = Writer(target, "llama")
    add_random_metadata(writer, reader, format_name)
    random = np.random.default_rng(1)
    kind, f32 = gguf.GGMLQuantizationType[format_name], gguf.GGMLQuantizationType.F32

    def matrix(name, rows, columns):
        deviation = columns**-0.5
        writer.add(f"{name}.weight", (rows, columns), kind,
                   lambda: random_blocks(random, (rows, columns), format_name, deviation))

    def norm(name):
        writer.add(f"{name}.weight", (HIDDEN,), f32, lambda: np.ones(HIDDEN, np.float32).view(np.uint8))

    kv_width = HIDDEN // HEADS * KV_HEADS
    matrix("token_embd", VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm")
        matrix(f"{block}.attn_q", HIDDEN, HIDDEN)
        matrix(f"{block}.attn_k", kv_width, HIDDEN)
        matrix(f"{block}.attn_v", kv_width, HIDDEN)
        matrix(f"{block}.attn_output", HIDDEN, HIDDEN)
        norm(f"{block}.ffn_norm")
        matrix(f"{block}.ffn_gate", FFN, HIDDEN)
        matrix(f"{block}.ffn_up", FFN, HIDDEN)
        matrix(f"{block}.ffn_down", HIDDEN, FFN)
    norm("output_norm")
    matrix("output", VOCABULARY, HIDDEN)
    writer.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=peer_setup.bench_models_folder(),
                        help="where the files go (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME",
                        help="some of: " + ", ".join(NAMES))
    parser.add_argument("--smollm2", type=Path, help="SmolLM2 in Q4_1 (default: where ./dev setup puts it)")
    peer_setup.add_venv_option(parser)
    arguments = parser.parse_args()
    missing = [name for name in arguments.only if not model_file(name, arguments.out).exists()]
    if not missing:
        return
    source = arguments.smollm2 or peer_setup.find_smollm2()
    peer_setup.run_inside_venv(arguments.venv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in missing:
        peer_setup.say(f"writing {model_file(name, arguments.out)}")
        if name in SMOLLM2_FORMATS:
            requantise(source, model_file(name, arguments.out), SMOLLM2_FORMATS[name])
        else:
            random_model(source, model_file(name, arguments.out), RANDOM_FORMATS[name])


if __name__ == "__main__":
    sys.exit(main())
