#!/usr/bin/env bash
# eval_test.sh PROGRAM QUESTIONS: `millrace eval` on tiny-dsa, whose right answers need the right keys,
# positions, cache slots and experts. At most one question in a hundred may go otherwise than in the table of
# models/tiny-dsa/README.md. With the most recent keys in place of the best ones the answers must be wrong:
# then the test can fail. Also: the errors of the command.
set -euo pipefail

program=$1 questions=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
sets=$root/models/tiny-dsa/eval
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" # the name is found from the program's place
unset MILLRACE_MODELS
failures=0

complain() {
  echo "$*" >&2
  failures=$((failures + 1))
}

# expect_right LEAST MOST ARGS...: the number of right answers of `millrace eval ARGS`.
expect_right() {
  local least=$1 most=$2 report right
  shift 2
  report=$("$program" eval "$@" --json) || complain "eval $*: exit $?"
  right=$(sed -n 's/^ *"correct": \([0-9]*\),$/\1/p' <<<"$report")
  if [[ -z $right || $right -lt $least || $right -gt $most ]]; then
    complain "eval $*: ${right:-no} right answers, expected $least to $most: $report"
  fi
}

# expect_error PATTERN ARGS...: one line, exit code 1.
expect_error() {
  local pattern=$1 output status=0
  shift
  output=$("$program" eval "$@" 2>&1) || status=$?
  if [[ $status -ne 1 || $(wc -l <<<"$output") -ne 1 || ! $output =~ $pattern ]]; then
    complain "eval $*: expected one line with '$pattern' and exit 1, got exit $status and: $output"
  fi
}

needles=(tiny-dsa "$sets/needle.jsonl" --limit "$questions")
expect_right $((questions - questions / 60)) "$questions" "${needles[@]}" --output "$work/rows.jsonl"
lines_of() { sed -n 's/^{"line":\([0-9]*\),"prompt":.*}$/\1/p' "$1" | sort -n; }
[[ $(lines_of "$work/rows.jsonl") == $(seq "$questions") ]] || complain "--output: not a row for each question"

# A run that is killed leaves the rows of the questions that it has answered, and each of them whole.
"$program" eval "${needles[@]}" --max-num-seqs 1 --output "$work/killed.jsonl" >/dev/null 2>&1 &
for ((i = 0; i < 2000; ++i)); do
  [[ ! -s $work/killed.jsonl ]] || break
  sleep 0.01
done
kill -KILL $!
wait $! 2>/dev/null && complain "--output: no row came before the end"
answered=$(lines_of "$work/killed.jsonl")
if [[ -z $answered || $(wc -l <<<"$answered") -eq $questions || $answered != $(seq $(wc -l <<<"$answered")) ||
  $(wc -l <<<"$answered") -ne $(wc -l <"$work/killed.jsonl") ]]; then
  complain "--output: a run that was killed left these lines: $answered"
fi
expect_right $((questions - questions / 60)) "$questions" "${needles[@]}" --indexer-dtype f32 --kv-cache-dtype f32
if grep -qw avx512_bf16 /proc/cpuinfo && [[ -z ${MILLRACE_ISA-} ]]; then # the numeric class bf16 rounds more
  expect_right $((questions - questions / 60)) "$questions" "${needles[@]}" --kv-cache-dtype bf16 --numeric-class bf16
fi
most_recent=$((questions >= 60 ? questions / 5 : questions / 2)) # few questions say little
MILLRACE_TEST_SELECTION=recent expect_right 0 "$most_recent" "${needles[@]}"

if [[ $questions -ge 60 ]]; then # 173 of 200 in the table
  expect_right 171 175 tiny-dsa "$sets/wordproblems.jsonl" --num-fewshot 4 \
    --fewshot-file "$sets/wordproblems_train.jsonl" --indexer-dtype f32 --kv-cache-dtype f32
fi

expect_error 'no rows; expected one JSON object' tiny-dsa /dev/null
expect_error 'line 1: the row has no "question"' tiny-dsa "$sets/needle.jsonl" --task gsm8k
expect_error 'needs --fewshot-file' tiny-dsa "$sets/wordproblems.jsonl" --num-fewshot 4
expect_error '--limit 0: expected at least 1' tiny-dsa "$sets/needle.jsonl" --limit 0
cp "$sets/needle.jsonl" "$work"
expect_error 'is a file that this run reads' tiny-dsa needle.jsonl --output "$work/needle.jsonl"
cmp -s "$sets/needle.jsonl" "$work/needle.jsonl" || complain "--output: the file of the questions changed"
expect_error 'no model of this name in .*/models' no-such-model "$sets/needle.jsonl"

[[ $failures -eq 0 ]]
