# ./dev run: from a clean clone to an answer.

readonly DEFAULT_PROMPT='What is gravity?'

cmd_run() {
  case ${1:-} in
    -h | --help)
      cat <<HELP
Usage: ./dev run [ARGS...]

Sets everything up (packages, build, the default model) and lets the model answer.
  ./dev run                       asks $MODEL_NAME: "$DEFAULT_PROMPT"
  ./dev run -p "Hi"               options without a model go to $MODEL_NAME
  ./dev run $MODEL_NAME               a chat
  ./dev run MODEL [OPTIONS]       as build/millrace run MODEL [OPTIONS]
The answer is on the standard output, everything else on the standard error.
Exit codes: the program's; 1 also if the build failed; 3 if something could not be installed.
HELP
      return
      ;;
  esac
  setup_build
  build_targets release millrace
  setup_model
  if [[ $# -eq 0 ]]; then
    set -- "$MODEL_NAME" -p "$DEFAULT_PROMPT"
  elif [[ $1 == -* ]]; then
    set -- "$MODEL_NAME" "$@"
  fi
  exec build/millrace run "$@"
}
