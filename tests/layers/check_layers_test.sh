#!/usr/bin/env bash
# Shows that check_layers.sh can fail: builds small trees, each with one breach, and looks for it.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check_layers.sh
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

# expect STATUS PATTERN: runs the check on the tree.
expect() {
  local status=0 output
  output=$(bash "$check" "$tree" 2>&1) || status=$?
  if [[ $status -ne $1 || ! $output =~ $2 ]]; then
    echo "expected exit $1 and '$2', got exit $status and: $output" >&2
    failures=$((failures + 1))
  fi
}

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

[[ $failures -eq 0 ]]
