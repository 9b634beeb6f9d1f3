#!/usr/bin/env bash
# Tests of ./dev itself: help, exit codes, the counting of test cases. Nothing is installed or built.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect STATUS PATTERN COMMAND...
expect() {
  local status=0 output want=$1 pattern=$2
  shift 2
  output=$("$@" 2>&1 </dev/null) || status=$?
  if [[ $status -ne $want || ! $output =~ $pattern ]]; then
    echo "$*: expected exit $want and '$pattern', got exit $status and: $output" >&2
    failures=$((failures + 1))
  fi
}

expect 0 'Usage: ./dev COMMAND' "$root/dev" --help
expect 2 'Usage: ./dev COMMAND' "$root/dev"
expect 2 "no command 'nonsense'" "$root/dev" nonsense
for command in run test build bench format lint setup; do
  expect 0 "Usage: ./dev $command" "$root/dev" "$command" --help
done
for command in test build format lint setup; do
  expect 2 "takes no argument 'nonsense'" "$root/dev" "$command" nonsense
done
expect 2 '--filter needs' "$root/dev" test --filter

# The report of three programs: cases that pass, fail and are skipped; a crash; a plain program.
cat >"$work/report.xml" <<'XML'
<testsuite>
	<testcase name="base" classname="base" time="0.1" status="run">
		<system-out>[  PASSED  ] 12 tests.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Progress.Draws
</system-out>
	</testcase>
	<testcase name="io" classname="io" time="0.1" status="fail">
		<system-out>[  PASSED  ] 3 tests.
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] Gguf.Reads
 2 FAILED TESTS
</system-out>
	</testcase>
	<testcase name="crashed" classname="crashed" time="0.1" status="fail">
		<system-out>[ RUN      ] Crash.Now</system-out>
	</testcase>
	<testcase name="layers" classname="layers" time="0.1" status="run">
		<system-out></system-out>
	</testcase>
</testsuite>
XML
expect 0 '^16 passed, 3 failed, 2 skipped$' awk -f "$root/scripts/count_tests.awk" "$work/report.xml"
sed -i '/name="base"/,/<\/testcase>/s/.*SKIPPED.*//' "$work/report.xml"
expect 0 '^16 passed, 3 failed$' awk -f "$root/scripts/count_tests.awk" "$work/report.xml"

[[ $failures -eq 0 ]]
