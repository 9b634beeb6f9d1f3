# ./dev bench: speed of this build, alone or beside a peer.

readonly COMPARE=bench/compare_llama_cpp.py

cmd_bench() {
  case ${1:-} in
    -h | --help)
      cat <<HELP
Usage: ./dev bench [ARGS...]
       ./dev bench compare [ARGS...]

Measures build/millrace on the default model; ARGS are those of millrace bench (-p, -n, -d, -b, -r, -t).
Options without a model go to $MODEL_NAME.
  compare   alternates runs of Millrace and of llama.cpp on the same files and prints the ratios;
            the first time it builds llama.cpp and makes the files (15 minutes, 3 GB in the cache
            folder); ARGS are those of $COMPARE
Exit codes: 0 measured; 1 failed, or a bar of compare was missed; 2 wrong usage; 3 could not set up.
HELP
      return
      ;;
  esac
  # Without setting up, where that can be.
  if [[ ${1:-} == compare && " $* " =~ \ (-h|--help)\  ]] && command -v python3 >/dev/null; then
    exec python3 "$COMPARE" --help
  fi
  setup_build
  build_targets release millrace
  setup_model
  if [[ ${1:-} == compare ]]; then
    shift
    bench_compare "$@"
  fi
  if [[ $# -eq 0 || $1 == -* ]]; then set -- "$MODEL_NAME" "$@"; fi
  exec build/millrace bench "$@"
}

bench_compare() {
  local peer=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/peer/venv
  if [[ ! -x $peer/bin/python && " $* " != *' --venv'* && " $* " != *' --setup '* ]]; then
    install_packages python3-venv
    python3 "$COMPARE" --setup >&2 || exit
  fi
  exec python3 "$COMPARE" "$@"
}
