#!/usr/bin/env python3
"""The speed, memory and start of Millrace beside llama.cpp, on the same files in one run.

    bench/compare_llama_cpp.py --setup          once: makes the environment and the model files
    bench/compare_llama_cpp.py [--rows NAME ...] [--runs 5] [--json FILE]

Each measure is a process of its own, and the two programs alternate; a figure is the median of the
runs. llama.cpp is measured with and without flash attention (and, for several sequences, with one
cache for all and with one each); the fastest of these counts, and those that are far behind in the first
run are not run again. A row passes if Millrace is at least `bar` times as fast; the deepest row of sparse
attention is held to a share of Millrace's own speed at a lesser depth. Peak memory passes if it is no more
than llama.cpp's for the same work, and the start if the first token of SmolLM2 comes within 0.5 s of process
start with a warm page cache.
Exit codes: 0 every bar is met on a quiet machine, 1 one is not, the machine was busy or a run failed,
2 wrong usage, 3 something is missing.
"""

import argparse
import dataclasses
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional

import footprint
import make_bench_models
import make_glm_dsa
import peer_setup


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a measure on a file, and how many times llama.cpp it should be."""
    name: str
    model: str  # "smollm2-q4_1", or one of make_bench_models.NAMES or make_glm_dsa.NAMES
    measure: str  # "prefill" or "decode"
    bar: Optional[float]  # None: shown only
    depth: int = 0
    sequences: int = 1
    numeric_class: str = "f32"
    cache: str = "auto"  # Millrace's; llama.cpp's is f16
    peer_model: str = ""  # llama.cpp's file, if it is another
    most_runs: int = 0  # 0: as many as --runs says
    own_row: str = ""  # Millrace is held to own_bar times its own speed in this row, too
    own_bar: float = 0

    def describe(self):
        if self.measure == "prefill":
            text = f"prefill {PREFILL_TOKENS}" + (f" at depth {self.depth}" if self.depth else "")
        elif self.sequences > 1:
            text = f"decode, {self.sequences} sequences, total"
        else:
            text = f"decode at depth {self.depth}"
        if self.numeric_class != "f32":
            text += f", numeric class {self.numeric_class}"
        return text + (f" (llama.cpp: {self.peer_model})" if self.peer_model else "")


PREFILL_TOKENS, DECODE_TOKENS = 512, 64


SPARSE_BARS = {("decode", 0): 1.9, ("decode", 4096): 3.3, ("decode", 16384): 4.5,
               ("prefill", 0): 3.4, ("prefill", 4096): 5.5, ("prefill", 16384): 12}


def sparse_rows(heads, bars, numeric_class="f32"):
    """The rows of a model with sparse attention; `bars` by measure and depth, None without bars.

    Deep rows have fewer runs: to fill Millrace's cache takes longer than to measure.
    """
    prefix = f"glm-{heads}" if numeric_class == "f32" else f"glm-{heads}-{numeric_class}"
    cache = "bf16" if numeric_class == "bf16" else "auto"

    def row(measure, depth, most_runs=0, **own):
        name = f"{prefix}-{measure}" + (f"-{depth}" if depth else "")
        bar = bars and bars.get((measure, depth))
        return Row(name, make_glm_dsa.name_of(heads), measure, bar, depth, most_runs=most_runs,
                   numeric_class=numeric_class, cache=cache, **own)

    own = {"own_row": f"{prefix}-decode-4096", "own_bar": 0.75} if bars else {}
    return [row("decode", 0), row("decode", 4096), row("decode", 16384, 3), row("decode", 32768, 2, **own),
            row("prefill", 0), row("prefill", 4096), row("prefill", 16384, 3)]


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
    *sparse_rows(16, SPARSE_BARS),
    *sparse_rows(16, SPARSE_BARS, "bf16"),
    *sparse_rows(64, None),
    *sparse_rows(64, None, "bf16"),
]
FAR_BEHIND = 0.8  # of llama.cpp's fastest way in the first run
MOST_OTHER_WORK = 0.05  # of the processors
MEMORY, FIRST_TOKEN = "memory", "first-token"  # what --rows selects beside the rows of speed


class Peer:
    """llama.cpp, one way of running it."""

    def __init__(self, row, options, settings):
        tokens = PREFILL_TOKENS if row.measure == "prefill" else DECODE_TOKENS
        model = settings.model_path(row.peer_model or row.model)
        self.name = "llama.cpp " + (" ".join(options) or "plain")
        self.command = [settings.python, peer_setup.RUNNER, row.measure, model, "--tokens", tokens,
                        "--depth", row.depth, "--sequences", row.sequences, "--threads",
                        settings.threads, *options]
        if row.model in make_glm_dsa.NAMES:
            self.command.append("--quick-fill")

    def run(self):
        return json.loads(peer_setup.run_process(self.command)[0])


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
                        "--numeric-class", row.numeric_class, "--kv-cache-dtype", row.cache, "--json"]

    def run(self):
        results = json.loads(peer_setup.run_process(self.command)[0])
        if len(results) != 1:
            raise RuntimeError(f"{self.command[0]} bench gave {len(results)} results, expected one")
        return {"tokens_per_second": results[0]["median_ts"],
                "share_of_bound": results[0]["share_of_bound"], "isa": results[0]["isa"]}


@dataclasses.dataclass
class Settings:
    """What all measurements share."""
    millrace: Optional[Path]  # None: only the peer
    python: Path  # with the peer's packages
    threads: int
    smollm2: Path
    models: Path

    def model_path(self, name):
        if name == "smollm2-q4_1":
            return self.smollm2
        return make_bench_models.model_file(name, self.models)


class OtherWork:
    """The share of all processors that others than this script and its children took meanwhile.

    Threads that meet at barriers lose far more than this share, and llama.cpp's, which spin, the
    most: on a busy machine a ratio flatters Millrace.
    """

    def __init__(self):
        self.begin = self._now()

    @staticmethod
    def _now():
        """Wall clock, processor time of the whole machine, and of this script with its children."""
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return None
        user, nice, system, _, _, irq, soft_irq, stolen = (int(field) for field in fields)
        busy = (user + nice + system + irq + soft_irq + stolen) / os.sysconf("SC_CLK_TCK")
        own = sum(sum(resource.getrusage(who)[:2])
                  for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return time.monotonic(), busy, own

    def share(self):
        """Between 0 and 1; None if this system does not tell."""
        now = self._now()
        if now is None or self.begin is None:
            return None
        elapsed, busy, own = (after - before for after, before in zip(now, self.begin))
        return max(0.0, busy - own) / (elapsed * os.cpu_count())


def run_in_turn(row, programs, runs):
    """The samples of each program by name; the programs alternate."""
    samples = {program.name: [] for program in programs}
    for run in range(runs):
        for program in programs:
            samples[program.name].append(program.run())
            rate = samples[program.name][-1]["tokens_per_second"]
            peer_setup.say(f"{row.name} run {run + 1}/{runs}: {program.name}: {rate:.1f} tok/s")
        peers = [program for program in programs if isinstance(program, Peer)]
        fastest = max(samples[program.name][0]["tokens_per_second"] for program in peers)
        programs = [program for program in programs if program not in peers or
                    samples[program.name][0]["tokens_per_second"] >= FAR_BEHIND * fastest]
    return samples


def measure_row(row, settings, runs):
    """Alternates the programs; gives the medians, every run, and how the row stands to its bar."""
    other_work = OtherWork()
    programs = [Peer(row, options, settings) for options in peer_ways(row)]
    if settings.millrace:
        programs.append(Millrace(row, settings))
    samples = run_in_turn(row, programs, min(runs, row.most_runs or runs))
    rates = {name: statistics.median(sample["tokens_per_second"] for sample in values)
             for name, values in samples.items()}
    most = max(map(len, samples.values()))
    best = max((name for name, values in samples.items() if name != Millrace.name and len(values) == most),
               key=rates.get)
    result = {"row": dataclasses.asdict(row), "llama_cpp": rates[best], "llama_cpp_way": best,
              "other_work": other_work.share(), "samples": samples}
    if settings.millrace:
        ratio = rates[Millrace.name] / rates[best]
        shares = [sample["share_of_bound"] for sample in samples[Millrace.name]]
        result.update({"millrace": rates[Millrace.name], "ratio": ratio,
                       "pass": row.bar is None or ratio >= row.bar,
                       "share_of_bound": None if None in shares else statistics.median(shares)})
    return result


def hold_to_own_rows(results):
    """Compares rows with others of Millrace's own, where these were measured, too."""
    by_name = {result["row"]["name"]: result for result in results if "millrace" in result}
    for result in by_name.values():
        other = by_name.get(result["row"]["own_row"])
        if other:
            result["own_ratio"] = result["millrace"] / other["millrace"]
            result["pass"] = result["pass"] and result["own_ratio"] >= result["row"]["own_bar"]


def verdict(passed):
    return "pass" if passed else "**FAIL**"


def was_busy(result):
    return (result.get("other_work") or 0) > MOST_OTHER_WORK


def row_verdict(result):
    if result["row"]["bar"] is None and "own_ratio" not in result:
        return "-"
    return f"{verdict(result['pass'])}, but busy" if was_busy(result) else verdict(result["pass"])


def bar_text(result):
    """What the row is held to; of a row of Millrace's own, how it stands to it."""
    row = Row(**result["row"])
    texts = [] if row.bar is None else [str(row.bar)]
    if "own_ratio" in result:
        texts.append(f"{row.own_bar} x {row.own_row} (is {result['own_ratio']:.2f})")
    return ", ".join(texts) or "-"


def print_speed(results):
    print("| file | measure | llama.cpp tok/s | Millrace tok/s | share of bound | ratio | bar | |")
    print("|---|---|---|---|---|---|---|---|")
    for result in results:
        row = Row(**result["row"])
        ours = f"- | - | - | {bar_text(result)} | -"
        if "millrace" in result:
            share = result["share_of_bound"]
            ours = (f"{result['millrace']:.1f} | {'-' if share is None else f'{share:.0%}'} | "
                    f"{result['ratio']:.2f} | {bar_text(result)} | {row_verdict(result)}")
        print(f"| {row.model} | {row.describe()} | {result['llama_cpp']:.1f} | {ours} |")


def print_memory(results):
    print("| file | work | llama.cpp peak MiB (without mmap) | Millrace peak MiB | ratio | |")
    print("|---|---|---|---|---|---|")
    for result in results:
        mib = {key: result.get(key, 0) / 2**20 for key in ("llama_cpp", "llama_cpp_no_mmap", "millrace")}
        ours = "- | - | -"
        if "millrace" in result:
            ours = (f"{mib['millrace']:.0f} | {mib['millrace'] / mib['llama_cpp']:.2f} | "
                    f"{verdict(result['pass'])}")
        print(f"| {result['model']} | {result['work']} | {mib['llama_cpp']:.0f} "
              f"({mib['llama_cpp_no_mmap']:.0f}) | {ours} |")


def print_report(report):
    print(f"llama.cpp of llama-cpp-python {report['llama_cpp_version']}, {report['cpu']}, "
          f"{report['threads']} threads, medians of {report['runs']} alternated runs")
    if report["rows"]:
        print()
        print_speed(report["rows"])
        busiest = max((result["other_work"] or 0 for result in report["rows"]))
        print(f"\nOther work on this machine took up to {busiest:.0%} of its processors; above "
              f"{MOST_OTHER_WORK:.0%} a row counts as busy and its ratio means nothing.")
    if report["memory"]:
        print()
        print_memory(report["memory"])
    if report["first_token"]:
        first = report["first_token"]
        print(f"\nFirst token of SmolLM2: {first['seconds']:.3f} s after process start, bar "
              f"{first['bar']} s: {verdict(first['pass'])}")


def cpu_field(name):
    """What the system says of the first processor; "" if it does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def rows_of(names):
    """The rows of these names that this CPU can run; says which it cannot."""
    rows = [row for row in ROWS if row.name in names]
    if "avx512_bf16" in cpu_field("flags").split():
        return rows
    left_out = [row.name for row in rows if row.numeric_class == "bf16"]
    if left_out:
        print(f"left out, as this CPU has no bf16 dot products: {' '.join(left_out)}", file=sys.stderr)
    return [row for row in rows if row.numeric_class != "bf16"]


def parse_arguments():
    names = [row.name for row in ROWS] + [MEMORY, FIRST_TOKEN]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--setup", action="store_true",
                        help="make the environment and the model files, and end")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW",
                        help="some of: " + ", ".join(names))
    parser.add_argument("--runs", type=int, default=5,
                        help="runs of each program in each row; deep rows have fewer (default: 5)")
    parser.add_argument("--threads", type=int, default=2, help="of both programs (default: 2)")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    parser.add_argument("--millrace", type=Path, default=peer_setup.ROOT / "build" / "millrace",
                        help="the program (default: build/millrace)")
    parser.add_argument("--peer-only", action="store_true", help="measure only llama.cpp")
    parser.add_argument("--models", type=Path, default=peer_setup.bench_models_folder(),
                        help="the folder of the other model files (default: %(default)s)")
    peer_setup.add_venv_option(parser)
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.threads < 1:
        parser.error("--runs and --threads are at least 1")
    return arguments


def setup(arguments):
    peer_setup.find_smollm2()  # the other files are made of it; to build the peer takes long
    if not (arguments.venv / "bin" / "python").exists():
        peer_setup.make_venv(arguments.venv)
    make_models(arguments, {*make_bench_models.NAMES, *make_glm_dsa.NAMES})


def make_models(arguments, names):
    """Makes the files of `names` that do not exist yet, but for SmolLM2 as it is fetched."""
    dense = [name for name in make_bench_models.NAMES if name in names]
    heads = [str(heads) for heads in make_glm_dsa.HEADS if make_glm_dsa.name_of(heads) in names]
    for module, selection in ((make_bench_models, ["--only", *dense]), (make_glm_dsa, ["--heads", *heads])):
        command = [sys.executable, str(Path(module.__file__).resolve()), "--venv", str(arguments.venv),
                   "--out", str(arguments.models), *selection]
        if len(selection) > 1 and subprocess.run(command).returncode != 0:
            sys.exit(peer_setup.EXIT_MISSING)


def peer_version(settings):
    code = ("import json, llama_cpp; print(json.dumps([llama_cpp.__version__, "
            "llama_cpp.llama_print_system_info().decode()]))")
    return json.loads(peer_setup.run_process([settings.python, "-c", code])[0])


def save(report, path):
    """After every row, so that a run that is stopped leaves what it has measured."""
    if path:
        path.write_text(json.dumps(report, indent=1) + "\n")


def measure_all(arguments, settings):
    rows = rows_of(arguments.rows)
    with_memory = MEMORY in arguments.rows
    used = {name for row in rows for name in (row.model, row.peer_model)}
    if with_memory:
        used |= {name for name, _ in footprint.CASES}
    make_models(arguments, used)
    report = {"cpu": cpu_field("model name") or platform.machine(), "threads": settings.threads,
              "runs": arguments.runs, "rows": [], "memory": [], "first_token": None}
    report["llama_cpp_version"], report["llama_cpp_system"] = peer_version(settings)
    if FIRST_TOKEN in arguments.rows and settings.millrace:
        report["first_token"] = footprint.time_to_first_token(settings, arguments.runs)
    for row in rows:
        report["rows"].append(measure_row(row, settings, arguments.runs))
        hold_to_own_rows(report["rows"])
        save(report, arguments.json)
    if with_memory:
        report["memory"] = footprint.measure_memory(settings)
    save(report, arguments.json)
    return report


def main():
    arguments = parse_arguments()
    if arguments.setup:
        setup(arguments)
        return 0
    settings = Settings(
        millrace=None if arguments.peer_only else peer_setup.find_millrace(arguments.millrace),
        python=peer_setup.venv_python(arguments.venv), threads=arguments.threads,
        smollm2=peer_setup.find_smollm2(), models=arguments.models)
    try:
        report = measure_all(arguments, settings)
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        peer_setup.fail(f"{type(error).__name__}: {error}")
    print_report(report)
    results = report["rows"] + report["memory"] + [report["first_token"] or {}]
    good = all(result.get("pass", True) and not was_busy(result) for result in results)
    return 0 if good else peer_setup.EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
