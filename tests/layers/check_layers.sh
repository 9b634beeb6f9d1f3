#!/usr/bin/env bash
# check_layers.sh SRC: checks the shape of the code under SRC and prints each breach on a line.
#   - every folder is a layer of the list in SRC/CMakeLists.txt (bottom to top);
#   - a file includes only its own folder and folders before it in that list;
#   - a folder's CMakeLists.txt names only layers before it as DEPS;
#   - only base/env.cc (and its test) reads environment variables.
# Exit codes: 0 clean, 1 a breach, 2 wrong usage or no list of layers.
set -euo pipefail

src=${1:-}
[[ -f $src/CMakeLists.txt ]] || { echo "usage: check_layers.sh SRC (a folder with CMakeLists.txt)" >&2; exit 2; }
cd "$src"

layers=$(tr '\n' ' ' <CMakeLists.txt | sed -n 's/.*foreach(layer \([^)]*\)).*/\1/p')
[[ -n $layers ]] || { echo "no foreach(layer ...) in $src/CMakeLists.txt" >&2; exit 2; }

breaches=$(
  find . -mindepth 1 -maxdepth 1 -type d | sort | while read -r folder; do
    [[ " $layers " =~ [[:space:]]${folder#./}[[:space:]] ]] ||
      echo "${folder#./}: not in the list of layers in CMakeLists.txt"
  done

  find . -mindepth 2 -type f \( -name '*.cc' -o -name '*.h' -o -name '*.inc' \
    -o -name CMakeLists.txt \) | sort | xargs -r awk -v layers="$layers" '
    BEGIN { n = split(layers, list); for (i = 1; i <= n; i++) rank[list[i]] = i }
    FNR == 1 { file = substr(FILENAME, 3); own = file; sub(/\/.*/, "", own); in_deps = 0 }
    !(own in rank) { next }

    function check(other, how) {
      if (other in rank && rank[other] > rank[own])
        printf "%s:%d: layer %s %s %s, which is above it\n", file, FNR, own, how, other
    }

    FILENAME ~ /CMakeLists\.txt$/ {
      sub(/#.*/, "")
      count = split($0, words, /[ ()]+/)
      for (w = 1; w <= count; w++) {
        if (words[w] == "DEPS") in_deps = 1
        else if (words[w] == "LIBS") in_deps = 0
        else if (in_deps) check(words[w], "names as DEPS")
      }
      next
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      path = $0; sub(/^[^"]*"/, "", path); sub(/".*/, "", path)
      if (path ~ /^\.\.?\//) printf "%s:%d: include \"%s\" is relative; includes are from src/\n", file, FNR, path
      if (path ~ /\//) { sub(/\/.*/, "", path); check(path, "includes") }
      next
    }
    {
      sub(/\/\/.*/, "")
      if (file !~ /^base\/env(_test)?\.cc$/ && /(^|[^A-Za-z0-9_])(secure_getenv|getenv|environ)([^A-Za-z0-9_]|$)/)
        printf "%s:%d: reads an environment variable; only base/env.cc may\n", file, FNR
    }'
)

[[ -z $breaches ]] && exit 0
echo "$breaches"
exit 1
