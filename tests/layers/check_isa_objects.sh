#!/usr/bin/env bash
# check_isa_objects.sh OBJECT...: checks that objects compiled for an instruction set (*_avx2.cc.o and
# so on; others are passed over) define no weak symbol. The linker may take a weak function, an inline
# one of a shared header, from any object: then code for a newer CPU would run on an older one.
# Exit codes: 0 clean, 1 a weak symbol, 2 no object of an instruction set among the arguments.
set -euo pipefail

checked=0
found=0
for object in "$@"; do
  [[ $object =~ _(avx2|avx512[a-z0-9]*)\.cc\.o$ ]] || continue
  checked=$((checked + 1))
  if symbols=$(nm -C --defined-only "$object" | grep -E '^[0-9a-f]+ [WVu] '); then
    echo "$object defines weak symbols; give them internal linkage:"
    echo "$symbols"
    found=1
  fi
done
[[ $checked -gt 0 ]] || { echo "no object of an instruction set among $# arguments" >&2; exit 2; }
exit "$found"
