"""Peak memory of Millrace and llama.cpp on the same work, and how soon Millrace's first token comes.

Part of compare_llama_cpp.py. Memory is that of `millrace run`, the whole program with its tokenizer:
`millrace bench` also measures the machine's bandwidth, whose buffer would count.
"""

import dataclasses
import json
import statistics
import subprocess
import time

import peer_setup

FIRST_TOKEN_BAR = 0.5  # seconds
PROMPT_TOKEN = " the"  # one token in every vocabulary used here, also many times in a row


@dataclasses.dataclass(frozen=True)
class Work:
    """Prompts of `prompt` tokens, the same for all sequences, and `answer` tokens after each."""
    prompt: int
    answer: int = 16
    sequences: int = 1

    def describe(self):
        text = f"prompt {self.prompt}, answer {self.answer}"
        return text + (f", {self.sequences} sequences" if self.sequences > 1 else "")


CASES = [
    ("smollm2-q4_1", Work(512)),
    ("smollm2-q4_1", Work(4096)),
    ("smollm2-q8_0", Work(512)),
    ("smollm2-q8_0", Work(64, sequences=16)),
    ("smollm2-f16", Work(512)),
    ("llama-1b-q4_0", Work(512)),
    ("llama-1b-q8_0", Work(512)),
]


def millrace_peak(settings, model, work):
    command = [settings.millrace, "run", model, "-p", PROMPT_TOKEN * work.prompt, "--no-chat-template",
               "--temperature", 0, "--max-tokens", work.answer, "--ignore-eos", "--n", work.sequences,
               "--max-model-len", work.prompt + work.answer, "--threads", settings.threads]
    return peer_setup.run_process(command)[1]


def llama_cpp_peak(settings, model, work, options):
    """Without what the Python interpreter and its packages take."""
    command = [settings.python, peer_setup.RUNNER, "decode", model, "--depth", work.prompt, "--tokens",
               work.answer, "--sequences", work.sequences, "--threads", settings.threads, *options]
    return json.loads(peer_setup.run_process(command)[0])["peak_bytes"]


def measure_memory(settings):
    """One result for each of CASES. The bar is llama.cpp as it is by default, with mapped files."""
    results = []
    for name, work in CASES:
        model = settings.model_path(name)
        result = {"model": name, "work": work.describe()}
        for key, options in {"llama_cpp": [], "llama_cpp_no_mmap": ["--no-mmap"]}.items():
            # The lower of the two: without flash attention its scores need more room.
            result[key] = min(llama_cpp_peak(settings, model, work, options + attention)
                              for attention in ([], ["--flash-attention"]))
        if settings.millrace:
            result["millrace"] = millrace_peak(settings, model, work)
            result["pass"] = result["millrace"] <= result["llama_cpp"]
        peer_setup.say(f"memory of {name}, {work.describe()}: " + ", ".join(
            f"{key} {value / 2**20:.0f} MiB" for key, value in result.items()
            if key.startswith(("llama_cpp", "millrace"))))
        results.append(result)
    return results


def time_to_first_token(settings, runs):
    """Seconds from process start to the first byte of an answer; one run before warms the files."""
    command = [str(settings.millrace), "run", str(settings.smollm2), "-p", "Hi", "--max-tokens", "1",
               "--temperature", "0", "--threads", str(settings.threads)]
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            first = process.stdout.read(1)
            seconds.append(time.perf_counter() - begin)
            process.stdout.read()
        if not first or process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode} and "
                               f"{'an' if first else 'no'} answer")
    median = statistics.median(seconds[1:])
    return {"seconds": median, "runs": seconds[1:], "bar": FIRST_TOKEN_BAR,
            "pass": median <= FIRST_TOKEN_BAR}
