#!/usr/bin/env python3
"""The speed, memory and start of Millrace beside llama.cpp, on the same files in one run.

    bench/compare_llama_cpp.py --setup          once: makes the environment and the model files
    bench/compare_llama_cpp.py [--rows NAME ...] [--runs 5] [--json FILE]

Each measure is a process of its own, and the two programs alternate; a figure is the median of the
runs. llama.cpp is measured with and without flash attention (and, for several sequences, with one
cache for all and with one each); the fastest of these counts. A row passes if Millrace is at least
`bar` times as fast. Peak memory passes if it is no more than llama.cpp's on the same measure, and
the start if the first token of SmolLM2 comes within 0.5 s of process start with a warm page cache.
Exit codes: 0 every bar is met, 1 one is not or a run failed, 2 wrong usage, 3 something is missing.
"""

import argparse
import dataclasses
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import make_bench_models
import peer_setup

RUNNER = Path(__file__).resolve().parent / "llama_cpp_runner.py"
FIRST_TOKEN_BAR = 0.5  # seconds
RUN_TIMEOUT = 900  # seconds


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a measure on a file, and how many times llama.cpp it should be."""
    name: str
    model: str  # "smollm2-q4_1" or one of make_bench_models.NAMES
    measure: str  # "prefill" or "decode"
    bar: float
    depth: int = 0
    sequences: int = 1
    numeric_class: str = "f32"
    peer_model: str = ""  # llama.cpp's file, if it is another

    def describe(self):
        if self.measure == "prefill":
            text = "prefill 512"
        elif self.sequences > 1:
            text = f"decode, {self.sequences} sequences, total"
        else:
            text = f"decode at depth {self.depth}"
        if self.numeric_class != "f32":
            text += f", numeric class {self.numeric_class}"
        return text + (f" (llama.cpp: {self.peer_model})" if self.peer_model else "")


ROWS = [
    Row("q4_1-prefill", "smollm2-q4_1", "prefill", 4.5),
    Row("q4_1-decode", "smollm2-q4_1", "decode", 2.2),
    Row("q4_1-decode-4096", "smollm2-q4_1", "decode", 2.6, depth=4096),
    Row("q8_0-prefill", "smollm2-q8_0", "prefill", 1.7),
    Row("q8_0-decode", "smollm2-q8_0", "decode", 1.8),
    Row("f16-prefill", "smollm2-f16", "prefill", 1.2),
    Row("f16-decode", "smollm2-f16", "decode", 1.5),
    Row("bf16-prefill", "smollm2-bf16", "prefill", 2.1, numeric_class="bf16", peer_model="smollm2-f16"),
    Row("1b-q4_0-prefill", "llama-1b-q4_0", "prefill", 1.9),
    Row("1b-q4_0-decode", "llama-1b-q4_0", "decode", 1.6),
    Row("1b-q8_0-prefill", "llama-1b-q8_0", "prefill", 2.3),
    Row("1b-q8_0-decode", "llama-1b-q8_0", "decode", 1.7),
    Row("q8_0-decode-16", "smollm2-q8_0", "decode", 3.0, sequences=16),
    Row("1b-q4_0-decode-16", "llama-1b-q4_0", "decode", 2.4, sequences=16),
]
PREFILL_TOKENS, DECODE_TOKENS = 512, 64


def run_process(command):
    """Runs to the end; gives the standard output and the peak memory in bytes."""
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        # communicate() would reap the process and lose its resource usage, so wait4 comes first;
        # a few lines of output never fill the pipes.
        deadline = time.monotonic() + RUN_TIMEOUT
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = process.stdout.read(), process.stderr.read()
    if process.returncode != 0:
        lines = errors.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}: {lines[-1]}")
    return output, usage.ru_maxrss * 1024


class Peer:
    """llama.cpp, one way of running it."""

    def __init__(self, python, row, options, settings):
        tokens = PREFILL_TOKENS if row.measure == "prefill" else DECODE_TOKENS
        model = settings.model_path(row.peer_model or row.model)
        self.name = "llama.cpp " + (" ".join(options) or "plain")
        self.command = [python, RUNNER, row.measure, model, "--tokens", tokens, "--depth", row.depth,
                        "--sequences", row.sequences, "--threads", settings.threads, *options]

    def run(self):
        result = json.loads(run_process(self.command)[0])
        return {"tokens_per_second": result["tokens_per_second"], "peak_bytes": result["peak_bytes"],
                "version": result["version"], "system": result["system"]}


def peer_ways(row):
    """The options with which llama.cpp is tried."""
    choices = [[], ["--flash-attention"]], [[]]
    if row.sequences > 1:
        choices = choices[0], [[], ["--unified-cache"]]
    return [first + second for first, second in itertools.product(*choices)]


class Millrace:
    """Our program on the measure of a row."""

    name = "Millrace"

    def __init__(self, row, settings):
        prefill = row.measure == "prefill"
        self.command = [settings.millrace, "bench", settings.model_path(row.model),
                        "-p", PREFILL_TOKENS if prefill else 0, "-n", 0 if prefill else DECODE_TOKENS,
                        "-d", row.depth, "-b", row.sequences, "-t", settings.threads, "-r", 1,
                        "--numeric-class", row.numeric_class, "--json"]

    def run(self):
        output, peak = run_process(self.command)
        results = json.loads(output)["results"]
        if len(results) != 1:
            raise RuntimeError(f"{self.command[0]} bench gave {len(results)} results, expected one")
        return {"tokens_per_second": results[0]["tokens_per_second"], "peak_bytes": peak}


@dataclasses.dataclass
class Settings:
    """What all rows share."""
    millrace: Path
    threads: int
    smollm2: Path
    models: Path

    def model_path(self, name):
        if name == "smollm2-q4_1":
            return self.smollm2
        return make_bench_models.model_file(name, self.models)


def measure_row(row, settings, python, runs):
    """Alternates the programs; gives medians, all runs, and what is left of the bar."""
    programs = [Peer(python, row, options, settings) for options in peer_ways(row)]
    if settings.millrace:
        programs.append(Millrace(row, settings))
    samples = {program.name: [] for program in programs}
    for run in range(runs):
        for program in programs:
            samples[program.name].append(program.run())
            rate = samples[program.name][-1]["tokens_per_second"]
            peer_setup.say(f"{row.name} run {run + 1}/{runs}: {program.name}: {rate:.1f} tok/s")

    medians = {name: {key: statistics.median(sample[key] for sample in values)
                      for key in ("tokens_per_second", "peak_bytes")}
               for name, values in samples.items()}
    peers = [name for name in medians if name != Millrace.name]
    best = max(peers, key=lambda name: medians[name]["tokens_per_second"])
    result = {"row": dataclasses.asdict(row), "llama_cpp": dict(medians[best], way=best),
              "samples": samples}
    if settings.millrace:
        ours = medians[Millrace.name]
        ratio = ours["tokens_per_second"] / medians[best]["tokens_per_second"]
        result.update({
            "millrace": ours, "ratio": ratio, "pass": ratio >= row.bar,
            "memory_ratio": ours["peak_bytes"] / medians[best]["peak_bytes"],
            "memory_pass": ours["peak_bytes"] <= medians[best]["peak_bytes"]})
    return result


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


def verdict(passed):
    return "pass" if passed else "**FAIL**"


def print_tables(report):
    print(f"llama.cpp of llama-cpp-python {report['llama_cpp_version']}, {report['cpu']}, "
          f"{report['threads']} threads, medians of {report['runs']} alternated runs\n")
    print("| file | measure | llama.cpp tok/s | Millrace tok/s | ratio | bar | |")
    print("|---|---|---|---|---|---|---|")
    for result in report["rows"]:
        row = Row(**result["row"])
        line = f"| {row.model} | {row.describe()} | {result['llama_cpp']['tokens_per_second']:.1f} | "
        if "millrace" in result:
            line += (f"{result['millrace']['tokens_per_second']:.1f} | {result['ratio']:.2f} | "
                     f"{row.bar} | {verdict(result['pass'])} |")
        else:
            line += f"- | - | {row.bar} | - |"
        print(line)
    print("\n| file | measure | llama.cpp peak MiB | Millrace peak MiB | ratio | |")
    print("|---|---|---|---|---|---|")
    for result in report["rows"]:
        row, mib = Row(**result["row"]), 1 << 20
        line = f"| {row.model} | {row.describe()} | {result['llama_cpp']['peak_bytes'] / mib:.0f} | "
        if "millrace" in result:
            line += (f"{result['millrace']['peak_bytes'] / mib:.0f} | {result['memory_ratio']:.2f} | "
                     f"{verdict(result['memory_pass'])} |")
        else:
            line += "- | - | - |"
        print(line)
    if "first_token" in report:
        first = report["first_token"]
        print(f"\nFirst token of SmolLM2: {first['seconds']:.3f} s after process start, bar "
              f"{first['bar']} s: {verdict(first['pass'])}")


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def parse_arguments():
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--setup", action="store_true",
                        help="make the environment and the model files, and end")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW",
                        help="some of: " + ", ".join(names))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    parser.add_argument("--millrace", type=Path, default=peer_setup.ROOT / "build" / "millrace")
    parser.add_argument("--peer-only", action="store_true", help="measure only llama.cpp")
    parser.add_argument("--models", type=Path, default=peer_setup.bench_models_folder(),
                        help="the folder of the other model files (default: %(default)s)")
    peer_setup.add_venv_option(parser)
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.threads < 1:
        parser.error("--runs and --threads are at least 1")
    return arguments


def setup(arguments):
    if not (arguments.venv / "bin" / "python").exists():
        peer_setup.make_venv(arguments.venv)
    make_models(arguments, make_bench_models.NAMES)


def make_models(arguments, names):
    script = Path(make_bench_models.__file__).resolve()
    command = [sys.executable, str(script), "--venv", str(arguments.venv), "--out",
               str(arguments.models), "--only", *names]
    if names and subprocess.run(command).returncode != 0:
        sys.exit(peer_setup.EXIT_MISSING)


def measure_all(arguments, settings, python):
    rows = [row for row in ROWS if row.name in arguments.rows]
    made = {name for row in rows for name in (row.model, row.peer_model) if name in make_bench_models.NAMES}
    make_models(arguments, sorted(made))
    report = {"cpu": cpu_name(), "threads": settings.threads, "runs": arguments.runs,
              "load_average_before": os.getloadavg()[0], "rows": []}
    if report["load_average_before"] > 0.5:
        peer_setup.say(f"warning: the load average is {report['load_average_before']:.1f}; "
                       "other work on this machine makes every figure too low")
    for row in rows:
        report["rows"].append(measure_row(row, settings, python, arguments.runs))
    if settings.millrace:
        report["first_token"] = time_to_first_token(settings, arguments.runs)
    sample = next(values[0] for name, values in report["rows"][0]["samples"].items()
                  if name != Millrace.name)
    report["llama_cpp_version"], report["llama_cpp_system"] = sample["version"], sample["system"]
    return report


def main():
    arguments = parse_arguments()
    if arguments.setup:
        setup(arguments)
        return 0
    python = peer_setup.venv_python(arguments.venv)
    millrace = None if arguments.peer_only else peer_setup.find_millrace(arguments.millrace)
    settings = Settings(millrace, arguments.threads, peer_setup.find_smollm2(), arguments.models)
    try:
        report = measure_all(arguments, settings, python)
    except (RuntimeError, ValueError, KeyError) as error:
        peer_setup.fail(str(error))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    print_tables(report)
    if arguments.peer_only:
        return 0
    passed = all(result["pass"] and result["memory_pass"] for result in report["rows"])
    return 0 if passed and report["first_token"]["pass"] else peer_setup.EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
