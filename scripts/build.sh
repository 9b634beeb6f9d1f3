# Building. A preset of CMakePresets.json names the folder and the flags.

cmd_build() {
  local preset=release
  while [[ $# -gt 0 ]]; do
    case $1 in
      --debug) preset=debug ;;
      -h | --help)
        cat <<'HELP'
Usage: ./dev build [--debug]

Sets up what the build needs and builds the program: build/millrace.
  --debug   without optimisation and with debug information: build-debug/millrace
Exit codes: 0 built, 1 did not build, 2 wrong usage, 3 could not set up.
HELP
        return
        ;;
      *) die_usage "build takes no argument '$1'; see ./dev build --help" ;;
    esac
    shift
  done
  setup_build
  build_targets "$preset" millrace
  say "built $(build_folder "$preset")/millrace"
}

# The folder of a preset, as CMakePresets.json has it.
build_folder() { [[ $1 == release ]] && echo build || echo "build-$1"; }

# build_targets PRESET TARGET...: configures the folder once, then builds.
build_targets() {
  local preset=$1 folder
  shift
  folder=$(build_folder "$preset")
  if [[ ! -f $folder/build.ninja ]]; then
    say "configuring $folder"
    cmake --preset "$preset" >&2 || die "$EXIT_FAILED" "could not configure $folder"
  fi
  say "building $folder: $*"
  cmake --build "$folder" --parallel "$(cores)" --target "$@" >&2 ||
    die "$EXIT_FAILED" "the build failed; see the first error above"
}
