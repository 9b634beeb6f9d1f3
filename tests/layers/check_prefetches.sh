#!/usr/bin/env bash
# check_prefetches.sh OBJECT...: checks that the prefetches of matmul.cc are in its object. A compiler
# may drop them (base/prefetch.h), and no result tells of it.
# Exit codes: 0 they are there, 1 one is missing, 2 matmul.cc's object is not among the arguments.
set -euo pipefail

for object in "$@"; do
  [[ $object == */matmul.cc.o ]] || continue
  code=$(objdump -d "$object")
  for instruction in prefetcht1 prefetchw; do
    grep -qw "$instruction" <<<"$code" || { echo "$object has no $instruction"; exit 1; }
  done
  exit 0
done
echo "matmul.cc.o is not among $# arguments" >&2
exit 2
