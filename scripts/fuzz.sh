#!/usr/bin/env bash
# Searches inputs that the readers of untrusted bytes can neither read nor refuse: libFuzzer on the targets of
# tests/fuzz/, with the address and undefined-behaviour sanitizers, in build-fuzz/. Its corpus is kept in
# build-fuzz/corpus/, so that the next run continues from it.
# usage: scripts/fuzz.sh [TARGET|all [SECONDS]]    (default: all, 60 s each). Not part of CI, which replays the kept
# corpus (fuzz/*).
# A finding ends with status 70 and is in build-fuzz/findings/TARGET/; tests/fuzz/README.md has the results of the last
# long run.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
targets=(gguf safetensors config_json tokenizer_json tokens_beside sentencepiece chat_template jsonl experiment results)
wanted=${1:-all} seconds=${2:-60}
if [ "$wanted" != all ]; then
  [[ " ${targets[*]} " == *" $wanted "* ]] || die 64 "unknown target \"$wanted\" (nothing was built); write all or one of: ${targets[*]}"
  targets=("$wanted")
fi
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die 64 "\"$seconds\" is no number of seconds (nothing was built); write a whole number from 1 on"
scripts/setup.sh fuzz
step "configure build-fuzz/"
# libtorch, MPI, HDF5 and xgrammar are not instrumented. vptr needs type information that libtorch does not export.
logged .deps/log/configure-build-fuzz.log cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1" -DMAGISTER_TESTS=ON -DMAGISTER_FUZZ=ON -DMAGISTER_CUDA=OFF \
  -DMAGISTER_SANITIZE=address,undefined,fuzzer-no-link "-DMAGISTER_SANITIZE_FLAGS=-fno-sanitize=vptr"
step "build build-fuzz/"
ninja -C build-fuzz "${targets[@]/#/fuzz_}" || die 70 "the build failed (its messages stand above); fix the code and run the same command again"

# As in scripts/sanitize.sh. An allocation that is too large for any machine throws bad_alloc, so the target reports it
# and not the sanitizer.
export ASAN_OPTIONS="detect_leaks=0:detect_container_overflow=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:suppressions=$MAGISTER_ROOT/tests/support/undefined_sanitizer.supp:${UBSAN_OPTIONS:-}"
status=0
for target in "${targets[@]}"; do
  step "fuzz $target, $seconds s"
  mkdir -p "build-fuzz/corpus/$target" "build-fuzz/findings/$target"
  largest=65536
  [ "$target" = gguf ] || [ "$target" = results ] || largest=16384
  nice "build-fuzz/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 -malloc_limit_mb=512 -max_len=$largest \
    -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$target/" "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" \
    >"build-fuzz/findings/$target.log" 2>&1 || status=$?
  grep -E '^stat::(number_of_executed_units|peak_rss_mb)|^SUMMARY|^fuzz target' "build-fuzz/findings/$target.log" || true
  [ "$status" -eq 0 ] || die 70 "target $target found an input (its log is build-fuzz/findings/$target.log, the input lies beside it); fix the reader and leave the input in tests/fuzz/corpus/$target"
done
step_done
