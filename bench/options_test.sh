#!/usr/bin/env bash
# options_test.sh PROGRAM: the command line of a kernel benchmark. Nothing is measured.
set -euo pipefail

program=$1
failures=0

# expect STATUS PATTERN ARGS...: the exit code and one line on standard error, or the help.
expect() {
  local status=0 output want=$1 pattern=$2
  shift 2
  output=$("$program" "$@" 2>&1) || status=$?
  if [[ $status -ne $want || ! $output =~ $pattern || ($want -ne 0 && $output == *$'\n'*) ]]; then
    echo "$(basename "$program") $*: expected exit $want and '$pattern', got exit $status and: $output" >&2
    failures=$((failures + 1))
  fi
}

expect 0 '--isa .*Kernels: portable' --help
expect 2 '--no-such-option' --no-such-option
expect 2 'surplus' surplus
expect 2 '--isa' --isa
expect 2 'found "8086"|8086' --isa 8086

[[ $failures -eq 0 ]]
