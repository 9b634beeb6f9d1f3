#!/usr/bin/env python3
"""Measures what sparse attention costs over the length of the history, and draws it.

    bench/cost_curves.py [--millrace PROGRAM] [--most 131072] [--out docs/sparse-attention]

Two curves of a model with GLM-5.2's attention shapes and little else (shapes/glm-5.2-attention, random
weights): time of one decoded token, split into indexer, attention, experts and the rest; time of a prompt
of 512 tokens. Writes OUT/decode.svg, OUT/prefill.svg and OUT/curves.json, and prints these tables of
docs/sparse-attention.md; what the context takes in memory is said by `millrace inspect`. Takes about 10
minutes, most of it to fill the cache; nothing else should run meanwhile.
Exit codes: 0 measured, 1 millrace failed or a file could not be written, 2 wrong usage, 3 no program.
"""

import argparse
import json
import subprocess
from pathlib import Path

import peer_setup

HERE = Path(__file__).resolve().parent
SHAPE = HERE / "shapes" / "glm-5.2-attention"
DECODE_STEPS = 32
PROMPT = 512
INDEX_TOPK = 2048
DEPTHS = (0, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
LAYERS = 2
# What scores all keys; the merge is besides, one a token, on one thread.
SCORING = ("pack index queries", "indexer")
# Which kinds of steps belong to which part; the rest is the rest.
PARTS = {
    "indexer": (*SCORING, "indexer merge"),
    "attention": ("attention", "attention merge"),
    "experts": ("choose experts", "sort by expert", "pack by expert", "experts gate_up",
                "experts down", "shared down", "sum of experts", "router"),
}
COLOURS = {"rest": "#9aa5b1", "experts": "#e0a030", "attention": "#3b7dd8", "indexer": "#c0504d"}


def measure(program, depths, threads):
    """All depths in one process: the cache is filled once, from each depth to the next."""
    command = [str(program), "bench", str(SHAPE), "--load-format", "dummy", "--json", "--profile",
               "-p", str(PROMPT), "-n", str(DECODE_STEPS), "-t", str(threads), "-r", "3",
               "-d", ",".join(map(str, depths))]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}: {lines[-1]}")
    return json.loads(run.stdout)


def point(row):
    """One depth: milliseconds by part, scaled so that they add up to the median run."""
    tokens = row["n_gen"] or 1
    profile = row["profile"]
    seconds = {part: sum(profile[label]["seconds"] for label in labels if label in profile)
               for part, labels in PARTS.items()}
    total = sum(step["seconds"] for step in profile.values())
    seconds["rest"] = total - sum(seconds.values())
    whole = (row["n_gen"] or row["n_prompt"]) / row["median_ts"] / tokens * 1e3
    scoring = [profile[label] for label in SCORING if label in profile]
    scoring_seconds = sum(step["seconds"] for step in scoring)
    scoring_rate = (sum(step["multiply_adds"] for step in scoring) / scoring_seconds
                    if scoring_seconds else 0)
    peak = row["peak_multiply_adds"]  # None where the instruction set has no int8 dot products
    return {"depth": row["n_depth"], "ms": whole,
            **{part: whole * part_seconds / total for part, part_seconds in seconds.items()},
            "indexer_int8_share": scoring_rate / peak if peak else None}


def svg(points, title, path):
    """Stacked areas over the history, on a square-root scale so that short histories show."""
    width, height, left, bottom, top = 720, 380, 60, 50, 30
    most_depth = max(p["depth"] for p in points)
    most = max(p["ms"] for p in points) * 1.08
    x = lambda depth: left + (depth / most_depth) ** 0.5 * (width - left - 20)
    y = lambda ms: height - bottom - ms / most * (height - bottom - top)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="18" font-size="14">{title}</text>']
    below = [0.0] * len(points)
    for part, colour in COLOURS.items():
        above = [b + p[part] for b, p in zip(below, points)]
        edge = [f"{x(p['depth']):.1f},{y(a):.1f}" for p, a in zip(points, above)]
        edge += [f"{x(p['depth']):.1f},{y(b):.1f}" for p, b in reversed(list(zip(points, below)))]
        out.append(f'<polygon points="{" ".join(edge)}" fill="{colour}"/>')
        below = above
    for i, part in enumerate(reversed(COLOURS)):
        out.append(f'<rect x="{left + 12}" y="{top + 8 + 18 * i}" width="12" height="12" '
                   f'fill="{COLOURS[part]}"/><text x="{left + 30}" y="{top + 18 + 18 * i}">{part}</text>')
    step = 10 ** len(str(int(most))) / 10 if most >= 1 else 0.1
    step = step / 2 if most / step < 4 else step
    tick = 0.0
    while tick <= most:
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
                   f'stroke="#ddd" stroke-width="0.5"/>'
                   f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
        tick += step
    for p in points:
        label = f"{p['depth'] // 1024}k" if p["depth"] >= 1024 else str(p["depth"])
        if p["depth"] in (0, 2048, 8192, 16384, 32768, 65536, 131072):
            out.append(f'<text x="{x(p["depth"]):.1f}" y="{height - bottom + 18}" '
                       f'text-anchor="middle">{label}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">tokens of history</text>'
               f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" '
               'text-anchor="middle">milliseconds</text></svg>')
    path.write_text("\n".join(out) + "\n")


def table(points):
    print("| history | ms | indexer | attention | experts | rest | indexer, of int8 peak |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for p in points:
        share = p["indexer_int8_share"] if p["depth"] >= INDEX_TOPK else None
        share = "-" if share is None else f"{share * 100:.0f}%"
        print(f"| {p['depth']:,} | {p['ms']:.2f} | {p['indexer']:.2f} | {p['attention']:.2f} | "
              f"{p['experts']:.2f} | {p['rest']:.2f} | {share} |")
    print()


def report(rows, options):
    decode = [point(row) for row in rows if row["n_gen"]]
    prefill = [point(row) for row in rows if row["n_prompt"]]
    print("Decode, one token:\n")
    table(decode)
    print(f"Prefill of {PROMPT} tokens:\n")
    table(prefill)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "curves.json").write_text(
        json.dumps({"decode": decode, "prefill": prefill}, indent=1) + "\n")
    svg(decode, f"One decoded token, {LAYERS} layers, {options.threads} threads",
        options.out / "decode.svg")
    svg(prefill, f"A prompt of {PROMPT} tokens, {LAYERS} layers, {options.threads} threads",
        options.out / "prefill.svg")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--millrace", type=Path, default=peer_setup.ROOT / "build" / "millrace",
                        help="the program (default: build/millrace)")
    parser.add_argument("--most", type=int, default=DEPTHS[-1],
                        help="longest history, of decode and of prefill: at least 1024 (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of the program (default: 2)")
    parser.add_argument("--out", type=Path, default=peer_setup.ROOT / "docs" / "sparse-attention",
                        help="the folder of the files (default: docs/sparse-attention)")
    options = parser.parse_args()
    if options.most < DEPTHS[1]:
        parser.error(f"--most is at least {DEPTHS[1]}: a curve has two points")
    if options.threads < 1:
        parser.error("--threads is at least 1")
    return options


def main():
    options = parse_arguments()
    peer_setup.find_millrace(options.millrace)
    try:
        rows = measure(options.millrace, [d for d in DEPTHS if d <= options.most], options.threads)
        report(rows, options)
    except (RuntimeError, OSError) as error:
        peer_setup.fail(str(error))
    except (ValueError, KeyError) as error:
        peer_setup.fail(f"not what millrace bench --json prints: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
