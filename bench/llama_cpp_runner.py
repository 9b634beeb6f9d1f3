#!/usr/bin/env python3
"""Measures llama.cpp once, or takes its logits, through its C interface. Runs inside the environment.

One process is one measurement, so that its peak memory belongs to it. The measures are those of
llama-bench: a batch of random tokens, then one token at a time, each followed by a synchronise; a
warm-up run goes first and is not counted. The result is one JSON object on the standard output.
compare_llama_cpp.py and kl_llama_cpp.py start this script.

With --quick-fill the tokens before the measured ones are computed in pieces of one batch, each of which
sees only itself, and put together in the cache afterwards: the cache has the same size and shape as after
an honest fill, in a time that grows with the depth and not with its square. What the measured tokens cost
is the same; what they answer is not, so this is for random models.
"""

import argparse
import ctypes
import json
import random
import resource
import time

import llama_cpp as llama
from llama_cpp import llama_cpp as bindings

UBATCH = 512
CACHE_TYPES = {"f16": bindings.GGML_TYPE_F16, "f32": bindings.GGML_TYPE_F32}

# Kept for as long as the library may call it.
SILENT = bindings.llama_log_callback(lambda level, text, data: None)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Session:
    """A model and one context."""

    def __init__(self, model, settings):
        llama.llama_log_set(SILENT, ctypes.c_void_p(0))
        llama.llama_backend_init()
        parameters = llama.llama_model_default_params()
        parameters.n_gpu_layers = 0
        if settings.no_mmap:
            parameters.load_mode = bindings.LLAMA_LOAD_MODE_NONE
        self.model = llama.llama_model_load_from_file(model.encode(), parameters)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {model}")
        self.context = llama.llama_init_from_model(self.model, self._context_parameters(settings))
        if not self.context:
            raise SystemExit(f"llama.cpp cannot make a context of {settings.context} tokens for {model}")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.batch = llama.llama_batch_init(UBATCH, 0, 1)
        self.seconds = 0.0  # in llama.cpp, without what Python takes to fill the batch

    @staticmethod
    def _context_parameters(settings):
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = settings.context
        parameters.n_batch = parameters.n_ubatch = UBATCH
        # Pieces of a quick fill are sequences of their own until they are joined.
        pieces = -(-settings.depth // UBATCH) if settings.quick_fill else 0
        parameters.n_seq_max = settings.sequences + pieces
        parameters.kv_unified = settings.unified_cache or settings.quick_fill
        parameters.n_threads = parameters.n_threads_batch = settings.threads
        parameters.flash_attn_type = 1 if settings.flash_attention else 0
        parameters.type_k = parameters.type_v = CACHE_TYPES[settings.cache]
        parameters.no_perf = True
        return parameters

    def memory(self):
        return llama.llama_get_memory(self.context)

    def clear(self):
        llama.llama_memory_clear(self.memory(), False)

    def decode(self, rows):
        """Runs one batch; rows are (token, position, sequence, wants logits). Waits for its end."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants_logits) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wants_logits
        begin = time.perf_counter()
        status = llama.llama_decode(self.context, batch)
        llama.llama_synchronize(self.context)
        self.seconds += time.perf_counter() - begin
        if status != 0:
            raise SystemExit(f"llama_decode failed with {status} on a batch of {len(rows)} tokens")

    def random_token(self):
        return random.randrange(self.vocabulary)

    def prefill(self, num_tokens, sequence=0, depth=0):
        """Random tokens from position `depth` in batches of UBATCH; the last one gives logits."""
        end = depth + num_tokens
        for begin in range(depth, end, UBATCH):
            self.decode([(self.random_token(), position, sequence, position == end - 1)
                         for position in range(begin, min(begin + UBATCH, end))])

    def truncate(self, depth):
        """Forgets what sequence 0 has from position `depth` on."""
        if not llama.llama_memory_seq_rm(self.memory(), 0, depth, -1):
            raise SystemExit(f"llama.cpp cannot forget the positions from {depth} on")

    def quick_fill(self, depth):
        """Fills the cache of sequence 0 to `depth` with pieces that do not see each other."""
        pieces = []
        for begin in range(0, depth, UBATCH):
            self.clear()
            self.prefill(min(UBATCH, depth - begin), 0, begin)
            size = llama.llama_state_seq_get_size(self.context, 0)
            state = (ctypes.c_uint8 * size)()
            if llama.llama_state_seq_get_data(self.context, state, size, 0) != size:
                raise SystemExit("llama.cpp cannot save a part of its cache")
            pieces.append(state)
        self.clear()
        for number, state in enumerate(pieces, start=1):
            if llama.llama_state_seq_set_data(self.context, state, len(state), number) == 0:
                raise SystemExit("llama.cpp cannot restore a part of its cache")
            llama.llama_memory_seq_cp(self.memory(), number, 0, -1, -1)
            llama.llama_memory_seq_rm(self.memory(), number, -1, -1)
        last = llama.llama_memory_seq_pos_max(self.memory(), 0)
        if last != depth - 1:
            raise SystemExit(f"the filled cache ends at position {last}, expected {depth - 1}")

    def generate(self, depth, num_tokens, sequences):
        """num_tokens steps of one token of each sequence, the first at position `depth`."""
        for position in range(depth, depth + num_tokens):
            self.decode([(self.random_token(), position, sequence, True)
                         for sequence in range(sequences)])


def fill(session, settings):
    """Warms up, and leaves `depth` tokens of each sequence in the cache."""
    if settings.quick_fill:
        session.quick_fill(settings.depth)
        session.prefill(min(8, settings.tokens), 0, settings.depth)  # a first look at the joined cache
        session.truncate(settings.depth)
        return
    if settings.measure == "prefill":
        session.prefill(settings.tokens)
    else:
        session.generate(0, 1, settings.sequences)
    session.clear()
    for sequence in range(settings.sequences):
        session.prefill(settings.depth, sequence)


def measure(session, settings):
    """Seconds of the measured part, and the tokens in it."""
    fill(session, settings)
    session.seconds = 0.0
    if settings.measure == "prefill":
        session.prefill(settings.tokens, 0, settings.depth)
        return session.seconds, settings.tokens
    session.generate(settings.depth, settings.tokens, settings.sequences)
    return session.seconds, settings.tokens * settings.sequences


def run_measure(settings):
    baseline = peak_bytes()
    session = Session(settings.model, settings)
    seconds, num_tokens = measure(session, settings)
    print(json.dumps({
        "tokens_per_second": num_tokens / seconds,
        # What the interpreter and its packages take is not llama.cpp's.
        "peak_bytes": peak_bytes() - baseline,
    }))


def run_logits(settings):
    """For the prompts ids_<i> of a safetensors file, writes logits_<i> of all positions, as
    `millrace forward` does."""
    import numpy as np
    from safetensors.numpy import load_file, save_file
    prompts = load_file(settings.input)
    longest = max(len(ids) for ids in prompts.values())
    settings.context = settings.context or longest
    session = Session(settings.model, settings)
    results = {}
    for name, ids in prompts.items():
        rows = []
        session.clear()
        for begin in range(0, len(ids), UBATCH):
            part = ids[begin:begin + UBATCH]
            session.decode([(int(token), begin + i, 0, True) for i, token in enumerate(part)])
            pointer = llama.llama_get_logits(session.context)
            rows.append(np.ctypeslib.as_array(pointer, (len(part), session.vocabulary)).copy())
        results[name.replace("ids_", "logits_")] = np.concatenate(rows)
    save_file(results, settings.output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("measure", choices=["prefill", "decode", "logits"])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=512, help="measured tokens, of each sequence")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, help="default: what the measure needs")
    parser.add_argument("--cache", choices=list(CACHE_TYPES), default="f16")
    parser.add_argument("--flash-attention", action="store_true")
    parser.add_argument("--unified-cache", action="store_true")
    parser.add_argument("--quick-fill", action="store_true", help="fill the cache piece by piece (above)")
    parser.add_argument("--no-mmap", action="store_true", help="read the file instead of mapping it")
    parser.add_argument("--input", help="logits: ids_<i>, a safetensors file")
    parser.add_argument("--output", help="logits: logits_<i>, a safetensors file")
    settings = parser.parse_args()
    random.seed(1)
    settings.quick_fill = settings.quick_fill and settings.depth > 0
    if settings.quick_fill and settings.sequences > 1:
        parser.error("--quick-fill is for one sequence")
    if settings.measure == "logits":
        run_logits(settings)
        return
    settings.context = settings.context or settings.sequences * (settings.depth + settings.tokens)
    run_measure(settings)


if __name__ == "__main__":
    main()
