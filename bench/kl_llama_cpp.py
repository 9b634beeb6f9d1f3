#!/usr/bin/env python3
"""How far int8 activations move the model's answers, beside llama.cpp.

    bench/kl_llama_cpp.py [--model FILE.gguf] [--json]

Takes the logits of all positions of the texts in tests/data/golden/smollm2.json three ways: by
Millrace in exact mode, by Millrace with int8 activations, by llama.cpp. Prints the mean
Kullback-Leibler divergence of the last two from the first, KL(exact || other), in nats a token.
llama.cpp runs with its defaults (f16 cache, flash attention) and, as `millrace forward` does, with
an f32 cache; the bar is set by the better of the two: Millrace at most 1.1 times llama.cpp.
Exit codes: 0 within the bar, 1 not, 2 wrong usage, 3 something is missing.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import peer_setup

BAR = 1.1
LLAMA_CPP_WAYS = {
    "llama.cpp, f16 cache": ["--cache", "f16", "--flash-attention"],
    "llama.cpp, f32 cache": ["--cache", "f32"],
}
OURS = "Millrace, int8 activations"


def write_prompts(goldens, path):
    import numpy as np
    from safetensors.numpy import save_file
    prompts = json.loads(Path(goldens).read_text())["prompts"]
    save_file({f"ids_{i}": np.array(p["ids"], np.int32) for i, p in enumerate(prompts)}, str(path))
    return [p["name"] for p in prompts]


def log_softmax(logits):
    import numpy as np
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def divergences(exact, other):
    """KL(exact || other) of each position."""
    import numpy as np
    log_p, log_q = log_softmax(exact), log_softmax(other)
    return (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)


def compare(exact, other, names):
    """Divergence by text and over all positions, and how often the best token is the same."""
    import numpy as np
    by_text, same = [], []
    for i in range(len(names)):
        reference, logits = exact[f"logits_{i}"], other[f"logits_{i}"]
        if reference.shape != logits.shape:
            peer_setup.fail(f"logits_{i}: exact mode gave {reference.shape}, the other {logits.shape}")
        by_text.append(divergences(reference, logits))
        same.append(reference.argmax(axis=-1) == logits.argmax(axis=-1))
    everything = np.concatenate(by_text)
    return {
        "mean": float(everything.mean()),
        "p99": float(np.quantile(everything, 0.99)),
        "max": float(everything.max()),
        "same_best_token": float(np.concatenate(same).mean()),
        "by_text": {name: float(values.mean()) for name, values in zip(names, by_text)},
        "positions": len(everything),
    }


def measure(arguments, folder):
    """The comparisons by name."""
    from safetensors.numpy import load_file
    ids = folder / "ids.safetensors"
    names = write_prompts(arguments.goldens, ids)
    forward = [arguments.millrace, "forward", arguments.model, "--input", ids, "--threads",
               str(arguments.threads)]
    ways = {OURS: forward + ["--activation-quantization", "int8"]}
    for name, options in LLAMA_CPP_WAYS.items():
        ways[name] = [sys.executable, peer_setup.RUNNER, "logits",
                      arguments.model, "--input", ids, "--threads", str(arguments.threads), *options]

    output = folder / "exact.safetensors"
    peer_setup.run_process(forward + ["--activation-quantization", "none", "--output", output])
    exact = load_file(output)
    results = {}
    for name, command in ways.items():
        output = folder / "other.safetensors"
        peer_setup.run_process(command + ["--output", output])
        results[name] = compare(exact, load_file(output), names)
    return results


def print_table(results, ratio, model):
    first = next(iter(results.values()))
    print(f"{Path(model).name}, {len(first['by_text'])} texts, {first['positions']} positions, "
          "KL(Millrace exact || other) in nats\n")
    texts = list(first["by_text"])
    print("| | mean | p99 | max | same best token | " + " | ".join(texts) + " |")
    print("|---|" + "---|" * (4 + len(texts)))
    for name, result in results.items():
        cells = [f"{result['mean']:.5f}", f"{result['p99']:.4f}", f"{result['max']:.4f}",
                 f"{100 * result['same_best_token']:.1f}%"]
        cells += [f"{result['by_text'][text]:.5f}" for text in texts]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nMillrace / better llama.cpp: {ratio:.3f}; bar: at most {BAR}; "
          f"{'pass' if ratio <= BAR else 'FAIL'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", type=Path, help="a SmolLM2 GGUF (default: the one of ./dev setup)")
    parser.add_argument("--millrace", type=Path, default=peer_setup.ROOT / "build" / "millrace",
                        help="the program (default: build/millrace)")
    parser.add_argument("--goldens", type=Path,
                        default=peer_setup.ROOT / "tests" / "data" / "golden" / "smollm2.json",
                        help="the texts (default: tests/data/golden/smollm2.json)")
    parser.add_argument("--threads", type=int, default=2, help="of both programs (default: 2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    peer_setup.add_venv_option(parser)
    arguments = parser.parse_args()
    peer_setup.run_inside_venv(arguments.venv)
    peer_setup.find_millrace(arguments.millrace)
    arguments.model = arguments.model or peer_setup.find_smollm2()
    with tempfile.TemporaryDirectory() as folder:
        try:
            results = measure(arguments, Path(folder))
        except (RuntimeError, ValueError, KeyError, OSError) as error:
            peer_setup.fail(f"{type(error).__name__}: {error}")
    ratio = results[OURS]["mean"] / min(results[name]["mean"] for name in LLAMA_CPP_WAYS)
    if arguments.json:
        print(json.dumps({"model": str(arguments.model), "ratio": ratio, "bar": BAR,
                          "pass": ratio <= BAR, "results": results}, indent=1))
    else:
        print_table(results, ratio, arguments.model)
    return 0 if ratio <= BAR else peer_setup.EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
