# Counts test cases in ctest's JUnit report and prints "N passed, N failed[, N skipped]".
# A program that prints a GoogleTest summary counts by its cases; any other counts as one. A program
# that fails without a failed case (it crashed, or a sanitizer spoke at exit) counts as one failure.

function finish_program() {
  if (!in_program) return
  if (status == "notrun" || status == "disabled") skipped++
  else if (has_summary) {
    passed += case_passed; failed += case_failed; skipped += case_skipped
    if (status == "fail" && case_failed == 0) failed++
  } else if (status == "fail") failed++
  else passed++
  in_program = 0
}

/<testcase / {
  finish_program()
  in_program = 1; has_summary = 0; case_passed = 0; case_failed = 0; case_skipped = 0
  status = $0; sub(/.* status="/, "", status); sub(/".*/, "", status)
}
/\[  PASSED  \] [0-9]+ tests?\./ { case_passed = $(summary_field("PASSED")); has_summary = 1 }
/\[  FAILED  \] [0-9]+ tests?, listed below/ { case_failed = $(summary_field("FAILED")); has_summary = 1 }
/\[  SKIPPED \] [0-9]+ tests?, listed below/ { case_skipped = $(summary_field("SKIPPED")); has_summary = 1 }

function summary_field(word,   i) {
  for (i = 1; i < NF; i++) if ($i == word) return i + 2
  return NF
}

END {
  finish_program()
  printf "%d passed, %d failed", passed, failed
  if (skipped) printf ", %d skipped", skipped
  printf "\n"
}
