#!/usr/bin/env bash
# bad_options_test.sh PROGRAM: values and choices of options that cannot be meant end with a line that says so
# and exit code 1 (2 for wrong usage), and none is taken for another.
set -euo pipefail

program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
model=$root/models/tiny-dsa
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect STATUS PATTERN ARGS...: exit code, and what standard output and error have.
expect() {
  local status=$1 pattern=$2 actual=0 message
  shift 2
  message=$("$program" "$@" 2>&1 </dev/null) || actual=$?
  # An error is one line, the last.
  [[ $status -eq 0 ]] || message=$(grep -A 1000 '^millrace: error: ' <<<"$message")
  if [[ $actual -ne $status || ! $message =~ $pattern || $status -ne 0 && $message == *$'\n'* ]]; then
    echo "$*: expected exit $status and '$pattern', got exit $actual and: $message" >&2
    failures=$((failures + 1))
  fi
}

run=(run "$model" -p x --max-tokens 1)
for seed in -1 '' 0x10 1.5; do
  expect 1 "--seed: found \"$seed\", expected a whole number of at least 0;" "${run[@]}" --seed "$seed"
done
expect 1 '--seed: 18446744073709551616 is not between 0 and 18446744073709551615;' "${run[@]}" --seed 18446744073709551616
expect 0 'answer 1 tokens' "${run[@]}" --seed 18446744073709551615
expect 1 '--min-tokens: 99999999999999999999 is not between' "${run[@]}" --min-tokens 99999999999999999999
expect 1 '--n: 18446744073709551617 is not between' "${run[@]}" --n 18446744073709551617
# Decimal, also with a zero before it.
expect 0 'pp10 ' bench "$model" -n 0 -r 1 -p 010
expect 0 'pp8 ' bench "$model" -n 0 -r 1 -p 08
expect 1 '--n-prompt: found "x"' bench "$model" -p 8,x
expect 1 '--threads' "${run[@]}" --threads 4294967297
expect 1 '-t -1: expected 0 to' bench "$model" -t 1,-1

# Token ids, before the vocabulary is known and after.
expect 1 'stop_token_ids names token -1, which no vocabulary has' "${run[@]}" --stop-token-ids -1
expect 1 'stop_token_ids names token 640, the vocabulary has 0 to 639' "${run[@]}" --stop-token-ids 640
expect 1 'error: stop_token_ids names token 640' eval "$model" "$model/eval/needle.jsonl" --limit 1 --stop-token-ids 640
expect 1 'token 5 has one already' "${run[@]}" --logit-bias 5=1 --logit-bias 5=2

# Told before an older output is lost.
echo kept >"$work/rows"
expect 1 'error: stop_token_ids' eval "$model" "$model/eval/needle.jsonl" --output "$work/rows" --stop-token-ids 640
[[ $(cat "$work/rows") == kept ]] || { echo "eval --output lost an older file" >&2; failures=$((failures + 1)); }

# Options that would do nothing.
expect 1 '--system needs the chat template' "${run[@]}" --system x --no-chat-template
expect 1 '--dummy-format Q8_0 needs --load-format dummy' "${run[@]}" --dummy-format Q8_0
expect 2 '--logprobs' eval "$model" "$model/eval/needle.jsonl" --logprobs 1

# A list takes one argument, so that the model may follow it.
expect 0 'pp8' bench -n 0 -r 1 -p 8 "$model"
expect 0 'answer 1 tokens' run --stop-token-ids 5,6 "$model" -p x --max-tokens 1
expect 0 '"model": "tiny-dsa ' bench "$model/" -n 0 -r 1 -p 8 --json

# generation_config.json, and token ids in a file: the place is named.
cp -r "$model" "$work/model"
rm -rf "$work/model/eval"
echo '{"do_sample": true, "temperature": -5}' >"$work/model/generation_config.json"
expect 1 'generation_config.json: temperature is -5' run "$work/model" -p x
python3 "$root/tests/write_ids.py" "$work/ids.safetensors" ids_3 5 640
expect 1 'ids.safetensors: ids_3\[1\] is 640; the vocabulary has 0 to 639' \
  forward "$model" --input "$work/ids.safetensors" --output "$work/out.safetensors"

[[ $failures -eq 0 ]]
