#!/usr/bin/env bash
# Shows that the checks of this folder can fail: small trees, each with one breach, for
# check_layers.sh; small objects, with and without an inline function or prefetches, for
# check_isa_objects.sh and check_prefetches.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

fresh_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/base" "$tree/io" "$tree/cli"
  printf 'foreach(layer base io\n        cli)\nendforeach()\n' >"$tree/CMakeLists.txt"
  echo 'millrace_layer(io DEPS base LIBS z)' >"$tree/io/CMakeLists.txt"
  printf '#include "base/env.h"\n#include "io/file.h"\n// getenv in a comment\n' >"$tree/io/file.cc"
  echo 'const char* home = std::getenv("HOME");' >"$tree/base/env.cc"
}

# expect_of STATUS PATTERN CHECK ARGS...: runs a check and looks at what it says.
expect_of() {
  local status=0 output want=$1 pattern=$2 check=$3
  shift 3
  output=$(bash "$here/$check" "$@" 2>&1) || status=$?
  if [[ $status -ne $want || ! $output =~ $pattern ]]; then
    echo "$check: expected exit $want and '$pattern', got exit $status and: $output" >&2
    failures=$((failures + 1))
  fi
}

# expect STATUS PATTERN: the check of the layers on the tree.
expect() { expect_of "$1" "$2" check_layers.sh "$tree"; }

fresh_tree
expect 0 '^$'

fresh_tree
echo '#include "cli/main.h"' >>"$tree/io/file.cc"
expect 1 'io/file.cc:4: layer io includes cli, which is above it'

fresh_tree
echo '  #  include "io/file.h"' >"$tree/base/log.h"
expect 1 'base/log.h:1: layer base includes io'

fresh_tree
echo '#include "../base/env.h"' >>"$tree/io/file.cc"
expect 1 'io/file.cc:4: include "../base/env.h" is relative'

fresh_tree
printf 'millrace_layer(base\n  DEPS io)\n' >"$tree/base/CMakeLists.txt"
expect 1 'base/CMakeLists.txt:2: layer base names as DEPS io'

fresh_tree
echo 'auto v = getenv("X");' >>"$tree/io/file.cc"
expect 1 'io/file.cc:4: reads an environment variable'

fresh_tree
mkdir "$tree/stray" && touch "$tree/stray/a.cc"
expect 1 'stray: not in the list of layers'

rm "$tree/CMakeLists.txt"
expect 2 'usage'

compile() { "${CXX:-c++}" -O0 -x c++ - -c -o "$tree/$1"; }
compile good_avx2.cc.o <<<'namespace { int f(int x) { return x + 1; } } int g(int x) { return f(x); }'
compile bad_avx512vnni.cc.o <<<'inline int shared(int x) { return x + 1; } int g(int x) { return shared(x); }'
expect_of 0 '^$' check_isa_objects.sh "$tree/good_avx2.cc.o"
expect_of 1 'bad_avx512vnni.cc.o defines weak symbols.*shared\(int\)' check_isa_objects.sh \
  "$tree/good_avx2.cc.o" "$tree/bad_avx512vnni.cc.o"
expect_of 2 'no object of an instruction set' check_isa_objects.sh plain.cc.o

mkdir "$tree/prefetch"
compile prefetch/matmul.cc.o <<<'void f(char* p) { asm("prefetcht1 %0\n prefetchw %0" : : "m"(*p)); }'
expect_of 0 '^$' check_prefetches.sh "$tree/good_avx2.cc.o" "$tree/prefetch/matmul.cc.o"
compile prefetch/matmul.cc.o <<<'void f(char* p) { asm("prefetcht1 %0" : : "m"(*p)); }'
expect_of 1 'matmul.cc.o has no prefetchw' check_prefetches.sh "$tree/prefetch/matmul.cc.o"
expect_of 2 'matmul.cc.o is not among' check_prefetches.sh "$tree/good_avx2.cc.o"

[[ $failures -eq 0 ]]
