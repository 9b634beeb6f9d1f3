# ./dev bench: speed of this build, alone or beside a peer.

cmd_bench() {
  case ${1:-} in
    -h | --help)
      cat <<HELP
Usage: ./dev bench [ARGS...]
       ./dev bench compare [ARGS...]

Measures build/millrace on the default model; ARGS are those of millrace bench (-p, -n, -d, -b, -t).
Options without a model go to $MODEL_NAME.
  compare   alternates runs of Millrace and of llama.cpp on the same file and prints the ratio
Exit codes: 0 measured, 1 failed, 3 could not set up.
HELP
      return
      ;;
  esac
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
  local script
  for script in bench/compare_llama_cpp.sh bench/compare_llama_cpp.py; do
    [[ -f $script ]] || continue
    if [[ $script == *.py ]]; then exec python3 "$script" "$@"; fi
    exec bash "$script" "$@"
  done
  die "$EXIT_MISSING" "bench/compare_llama_cpp.sh or .py is not in this tree"
}
