# Shared by all commands of ./dev: what is said to the user, exit codes, small helpers.

readonly EXIT_FAILED=1 EXIT_USAGE=2 EXIT_MISSING=3

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  readonly BOLD=$'\e[1m' BLUE=$'\e[34m' RED=$'\e[31m' PLAIN=$'\e[0m'
else
  readonly BOLD='' BLUE='' RED='' PLAIN=''
fi

# One line for each step that takes time or changes the machine.
say() { printf '%s==>%s %s%s\n' "$BLUE$BOLD" "$PLAIN$BOLD" "$*" "$PLAIN" >&2; }

# die CODE MESSAGE: says what is wrong in one line and ends.
die() {
  local code=$1
  shift
  printf '%s./dev: error:%s %s\n' "$RED" "$PLAIN" "$*" >&2
  exit "$code"
}

die_usage() { die "$EXIT_USAGE" "$@"; }

# True if version $1 (dotted numbers) is at least $2.
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

has_command() { command -v "$1" >/dev/null 2>&1; }

cores() { nproc 2>/dev/null || echo 1; }
