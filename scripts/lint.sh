# ./dev format and ./dev lint: what the code looks like, and what static analysis says of it.

readonly FORMATTER=clang-format-14 LINTER=clang-tidy-19

# The C++ files that git knows of (new ones too), those under the given paths.
cpp_files() {
  git ls-files --cached --others --exclude-standard -- "$@" |
    while read -r file; do
      if [[ $file =~ \.(cc|h)$ && -f $file ]]; then echo "$file"; fi
    done
}

cmd_format() {
  local check=0
  case ${1:-} in
    '') ;;
    --check) check=1 ;;
    -h | --help)
      cat <<'HELP'
Usage: ./dev format [--check]

Formats all C++ files of src/, tests/ and bench/ as .clang-format says.
  --check   changes nothing; names the files that differ
Exit codes: 0 done or all in form, 1 with --check: some file differs, 2 wrong usage,
3 clang-format could not be installed.
HELP
      return
      ;;
    *) die_usage "format takes no argument '$1'; see ./dev format --help" ;;
  esac
  install_packages "$FORMATTER=$FORMATTER"
  local files=()
  mapfile -t files < <(cpp_files src tests bench)
  [[ ${#files[@]} -gt 0 ]] || return 0
  if [[ $check -eq 0 ]]; then
    "$FORMATTER" -i "${files[@]}"
    return
  fi
  "$FORMATTER" --dry-run -Werror "${files[@]}" ||
    die "$EXIT_FAILED" "some files are not in form; ./dev format mends them"
}

cmd_lint() {
  local all=0
  case ${1:-} in
    '') ;;
    --all) all=1 ;;
    -h | --help)
      cat <<'HELP'
Usage: ./dev lint [--all]

Checks that no layer includes upward, then runs clang-tidy (checks: .clang-tidy) on the sources that
differ from the last commit.
  --all   on all sources
Exit codes: 0 clean, 1 something was found, 2 wrong usage, 3 could not set up.
HELP
      return
      ;;
    *) die_usage "lint takes no argument '$1'; see ./dev lint --help" ;;
  esac
  setup_build
  install_packages "$LINTER=$LINTER"
  say "checking the layers"
  bash tests/layers/check_layers.sh src || exit "$EXIT_FAILED"
  local files=()
  if [[ $all -eq 1 ]]; then
    mapfile -t files < <(cpp_files src | grep '\.cc$')
  else
    mapfile -t files < <({ git diff --name-only HEAD -- src && git ls-files --others \
      --exclude-standard -- src; } | grep '\.cc$' | sort -u)
  fi
  [[ ${#files[@]} -gt 0 ]] || { say "no changed sources for clang-tidy" && return; }
  [[ -f build/build.ninja ]] || cmake --preset release >&2
  say "clang-tidy on ${#files[@]} files"
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(cores)" "$LINTER" --quiet -p build --warnings-as-errors='*' ||
    exit "$EXIT_FAILED"
}
