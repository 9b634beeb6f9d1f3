# ./dev test: all tests, or those under a sanitizer; the last line counts test cases.

# Layers whose code runs on several threads at once: what the thread sanitizer is for.
readonly THREADED_LAYERS=(base kernels program attention runtime engine)

cmd_test() {
  local preset=release filter='' nightly=0
  while [[ $# -gt 0 ]]; do
    case $1 in
      --sanitize=address,undefined | --sanitize=undefined,address | --sanitize=address) preset=asan ;;
      --sanitize=thread) preset=tsan ;;
      --filter)
        [[ $# -ge 2 ]] || die_usage "--filter needs a regular expression"
        filter=$2
        shift
        ;;
      --filter=*) filter=${1#*=} ;;
      --nightly) nightly=1 ;;
      -h | --help)
        test_help
        return
        ;;
      *) die_usage "test takes no argument '$1'; see ./dev test --help" ;;
    esac
    shift
  done
  setup_build
  setup_model
  if [[ $preset == tsan ]]; then
    local layers
    mapfile -t layers < <(threaded_layers_with_tests)
    build_targets tsan "${layers[@]/#/test_}"
    filter=${filter:-^($(IFS='|' && echo "${layers[*]}"))\$}
  else
    build_targets "$preset" all
  fi
  run_tests "$(build_folder "$preset")" "$filter" "$nightly"
}

test_help() {
  cat <<'HELP'
Usage: ./dev test [--sanitize=address,undefined|thread] [--filter REGEX] [--nightly]

Sets up, builds and runs the tests; the last line is "N passed, N failed[, N skipped]", counted in
test cases.
  --sanitize=address,undefined   all tests, built with these sanitizers in build-asan
  --sanitize=thread              the tests of the layers that run threads, in build-tsan
  --filter REGEX                 only test programs whose name matches (base, kernels, layers, ...)
  --nightly                      fuzz for a minute per target after the saved corpus, not for 2 s
Exit codes: 0 all passed, 1 a test or the build failed, 2 wrong usage, 3 could not set up.
HELP
}

threaded_layers_with_tests() {
  local layer
  for layer in "${THREADED_LAYERS[@]}"; do
    if compgen -G "src/$layer/*_test.cc" >/dev/null; then echo "$layer"; fi
  done
}

# run_tests FOLDER FILTER NIGHTLY
run_tests() {
  local folder=$1 filter=$2 nightly=$3 status=0 report=$1/test-report.xml
  local launch=() args=(--output-on-failure --output-junit test-report.xml --no-tests=error)
  # Keeps the end of each program's output in the report: there the test cases are counted.
  args+=(--test-output-size-passed 4096 --test-output-truncation head)
  [[ -z $filter ]] || args+=(-R "$filter")
  if [[ $nightly -eq 1 ]]; then
    export MILLRACE_FUZZ_SECONDS=60
    args+=(--timeout 7200)
  elif [[ $folder == build ]]; then
    args+=(--timeout 900)
  else
    args+=(--timeout 3600) # sanitizers slow the exhaustive kernel tests down tenfold
  fi
  export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
  export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
  export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}
  # gcc 12's thread sanitizer does not know the address layouts of newer kernels.
  if [[ $folder == build-tsan ]] && setarch -R true 2>/dev/null; then launch=(setarch -R); fi
  say "testing $folder"
  rm -f "$report"
  "${launch[@]}" ctest --test-dir "$folder" --parallel "$(cores)" "${args[@]}" || status=$?
  [[ -f $report ]] || die "$EXIT_FAILED" "ctest wrote no report (no test matches '$filter'?)"
  awk -f scripts/count_tests.awk "$report"
  [[ $status -eq 0 ]] || exit "$EXIT_FAILED"
}
