#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy, in the version of scripts/requirements/tidy.in. Exit status 1 if there
# is a warning.
# usage: scripts/tidy.sh [--since COMMIT | --all | FILE...]    (default: --since HEAD~1, the last commit and uncommitted
# changes)
# A header is checked through the first source of src/ that includes it; sources of tests/ are checked if they are
# named. Not part of CI.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
case "${1:---since}" in
  --all) mapfile -t changed < <(find src -name '*.cpp' | sort) ;;
  --since)
    since=${2:-HEAD~1}
    git rev-parse --quiet --verify "$since^{commit}" >/dev/null || die 64 "unknown commit \"$since\" (nothing was read); name one that git log shows"
    mapfile -t changed < <({ git diff --name-only --diff-filter=d "$since" -- src include && git ls-files --others --exclude-standard -- src include; } | sort)
    ;;
  --*) die 64 "unknown option \"$1\" (nothing was read); write --all, --since COMMIT or names of files" ;;
  *) changed=("$@") ;;
esac
scripts/setup.sh test
step "clang-tidy"
# A separate environment, since neither the program nor the tests need it.
stamp=$(sha256sum <scripts/requirements/tidy.txt)
if [ "$(cat .deps/tidy/stamp 2>/dev/null)" != "$stamp" ]; then
  logged .deps/log/tidy-venv.log .deps/venv/bin/python -m venv --clear .deps/tidy
  logged .deps/log/tidy-pip.log .deps/tidy/bin/python -m pip install --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    -r scripts/requirements/tidy.txt
  printf '%s\n' "$stamp" >.deps/tidy/stamp
fi
step "configure build-tidy/"
# One command per source, also for GPU code. Nothing is built: a missing precompiled header is read as text.
logged .deps/log/configure-build-tidy.log cmake -S . -B build-tidy -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DMAGISTER_TESTS=ON -DMAGISTER_CUDA=ON -DMAGISTER_UNITY=OFF

sources=()
for file in "${changed[@]}"; do
  case $file in
    *.cpp) sources+=("$file") ;;
    *.h | *.inc) mapfile -t -O ${#sources[@]} sources < <(grep -rlF --include='*.cpp' "${file##*/}\"" src | sort | head -n 1) ;;
  esac
done
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | sort -u | sed '/^$/d')
step "read ${#sources[@]} sources"
status=0
printf '%s\0' "${sources[@]}" | xargs -0 -r -n 1 -P "$(nproc)" nice .deps/tidy/bin/clang-tidy -p build-tidy --quiet '--warnings-as-errors=*' 2>.deps/log/tidy.log || status=1
step_done
[ "$status" -eq 0 ] || die 1 "clang-tidy warns of what stands above (what it could not parse is in .deps/log/tidy.log); fix it, or say in .clang-tidy why a check is wrong here"
