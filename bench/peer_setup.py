"""The Python environment of the peer and the files that the comparisons share.

The scripts beside this one run under any Python 3.9 or newer without packages. What needs packages
(llama-cpp-python, gguf, numpy, safetensors) runs in a virtual environment of its own, which `--setup` makes in
millrace/peer of the cache folder (XDG_CACHE_HOME, or ~/.cache). Nothing is installed elsewhere.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

EXIT_FAILED, EXIT_USAGE, EXIT_MISSING = 1, 2, 3
PACKAGES = ["numpy", "gguf", "safetensors"]
PEER_PACKAGE = "llama-cpp-python"
# GGML_NATIVE lets the compiler use whatever this CPU has; a prebuilt wheel would not.
PEER_CMAKE_ARGS = "-DGGML_NATIVE=ON"
ROOT = Path(__file__).resolve().parent.parent
RUNNER = ROOT / "bench" / "llama_cpp_runner.py"
RUN_TIMEOUT = 900  # seconds
INSIDE_VENV = "MILLRACE_BENCH_INSIDE_VENV"


def fail(message, code=EXIT_FAILED):
    """Ends the script with one line on the standard error."""
    print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
    sys.exit(code)


def say(message):
    print(message, file=sys.stderr, flush=True)


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"


def add_venv_option(parser):
    parser.add_argument("--venv", type=Path, default=cache_folder() / "peer" / "venv",
                        help="the environment with the peer (default: %(default)s)")


def venv_python(venv):
    """The Python of the environment; ends with a hint if it is not there."""
    python = venv / "bin" / "python"
    if not python.exists():
        fail(f"no environment at {venv}; bench/compare_llama_cpp.py --setup makes it", EXIT_MISSING)
    return python


def make_venv(venv):
    """Makes the environment and builds the peer from source for this CPU (some minutes)."""
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            fail(f"the peer is built from source and needs {tool}; ./dev setup installs it", EXIT_MISSING)
    if importlib.util.find_spec("ensurepip") is None:  # else half an environment would be left
        fail("this Python cannot make environments; on Debian: apt-get install python3-venv", EXIT_MISSING)
    say(f"making {venv}")
    environment = dict(os.environ, CMAKE_ARGS=PEER_CMAKE_ARGS,
                       CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count() or 1))
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--upgrade"]
    commands = [
        [sys.executable, "-m", "venv", str(venv)],
        pip + ["pip"] + PACKAGES,
        pip + ["--no-binary", PEER_PACKAGE, PEER_PACKAGE],
    ]
    for command in commands:
        if subprocess.run(command, env=environment, stdout=sys.stderr).returncode != 0:
            fail(f"this failed, see its message above: {' '.join(command)}", EXIT_MISSING)


def run_inside_venv(venv):
    """Starts this script again with the environment's Python, unless it already runs there."""
    if os.environ.get(INSIDE_VENV) == "1":
        return
    python = str(venv_python(venv))
    os.environ[INSIDE_VENV] = "1"
    os.execv(python, [python] + sys.argv)


def models_folders():
    """Where names of models are looked up, as the program itself does it."""
    named = os.environ.get("MILLRACE_MODELS")
    return ([Path(named)] if named else []) + [ROOT / "models", cache_folder() / "models"]


def find_smollm2():
    """The default model's file, which ./dev setup fetches."""
    for folder in models_folders():
        if (folder / "smollm2.gguf").is_file():
            return folder / "smollm2.gguf"
    fail("no smollm2.gguf in " + ", ".join(map(str, models_folders())) + "; ./dev setup fetches it",
         EXIT_MISSING)


def bench_models_folder():
    return cache_folder() / "bench-models"


def find_millrace(path):
    if not (path.is_file() and os.access(path, os.X_OK)):
        fail(f"no program at {path}; ./dev build makes it, --millrace names another", EXIT_MISSING)
    return path


def run_process(command):
    """Runs to the end; gives the standard output and the peak memory in bytes. Raises RuntimeError."""
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
