#!/usr/bin/env bash
# interrupt_test.sh PROGRAM: SIGINT ends a command that is at work with exit code 130 and a line on standard
# error that says so.
set -euo pipefail

program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
sets=$root/models/tiny-dsa/eval
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
set -m # background jobs take SIGINT

# expect_stopped FILE PATTERN ARGS...: interrupts `millrace ARGS` once FILE has $awaited in it.
awaited=.
expect_stopped() {
  local file=$1 pattern=$2 status=0
  shift 2
  : >"$work/out"
  : >"$work/err"
  "$program" "$@" >"$work/out" 2>"$work/err" </dev/null &
  for ((i = 0; i < 6000; ++i)); do
    if grep -qs -- "$awaited" "$work/$file"; then break; fi
    sleep 0.01
  done
  kill -INT $!
  wait $! 2>/dev/null || status=$?
  if [[ $status -ne 130 || ! $(cat "$work/err") =~ $pattern ]]; then
    echo "$*: expected exit 130 and '$pattern', got exit $status and: $(cat "$work/err")" >&2
    failures=$((failures + 1))
  fi
}

expect_stopped out 'error: stopped' bench "$root/models/tiny-dsa" -p 16 -n 512 -r 100000
# The last run of the last test, too: the row of the first shows that it has begun.
awaited=tg2
expect_stopped out 'error: stopped' bench "$root/models/tiny-dsa" -t 1 -p 0 -n 2,4000 -r 1
awaited=.
expect_stopped rows 'stopped after [0-9]+ of 200' eval "$root/models/tiny-dsa" "$sets/needle.jsonl" \
  --max-num-seqs 1 --output "$work/rows"
expect_stopped out 'answer [0-9]+ tokens' run "$root/models/tiny-dsa" -p "Copy 1." --min-tokens 4000 --max-tokens 4000

# Nothing of the file is left.
python3 "$root/tests/write_ids.py" "$work/ids.safetensors" ids_0 0x4000
awaited='not used'
expect_stopped err 'error: stopped' forward "$root/models/tiny-dsa" --input "$work/ids.safetensors" --chunk 1 \
  --output "$work/logits.safetensors"
if compgen -G "$work/logits*" >/dev/null; then
  echo "left behind: $(ls "$work")" >&2
  failures=$((failures + 1))
fi

[[ $failures -eq 0 ]]
