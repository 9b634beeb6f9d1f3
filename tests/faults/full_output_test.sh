#!/usr/bin/env bash
# full_output_test.sh PROGRAM: where the output has no room, a line on standard error says so and the exit
# code is 1; no part of a file is left behind.
set -euo pipefail

program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect_error PATTERN COMMAND...
expect_error() {
  local pattern=$1 status=0 message
  shift
  message=$("$@" 2>&1 >/dev/null) || status=$?
  if [[ $status -ne 1 || ! $message =~ $pattern ]]; then
    echo "$*: expected exit 1 and '$pattern', got exit $status and: $message" >&2
    failures=$((failures + 1))
  fi
}

on_full_disk() { "$program" "$@" >/dev/full; }
expect_error 'cannot write to the standard output' on_full_disk --help
expect_error 'cannot write to the standard output' on_full_disk --version
expect_error 'cannot write to the standard output' on_full_disk forward --help
expect_error 'cannot write to the standard output' on_full_disk inspect "$root/models/tiny-dsa"

# 100 ids, whose logits of 100 x vocabulary floats take more than the 64 KiB that a file may have.
python3 "$root/tests/write_ids.py" "$work/ids.safetensors" ids_0 0..99
with_small_files() (
  ulimit -f 64
  "$program" forward "$root/models/tiny-dsa" --input "$work/ids.safetensors" --output "$work/out.safetensors"
)
expect_error 'out.safetensors: cannot be written' with_small_files
if compgen -G "$work/out*" >/dev/null; then
  echo "left behind: $(ls "$work")" >&2
  failures=$((failures + 1))
fi

[[ $failures -eq 0 ]]
