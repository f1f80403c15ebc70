#!/usr/bin/env bash
# Runs the tests under sanitizers, in separate build folders: address (with undefined behaviour; build-asan/) or thread
# (build-tsan/).
# usage: scripts/sanitize.sh address|thread [arguments of ctest, for example -R engine]
# Compiled with -O1 and assertions, without GPU code. libtorch, MPI, HDF5 and xgrammar are not instrumented;
# tests/support/*_sanitizer.* explain the consequences. The last results are in tests/README.md.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

case "${1:-}" in
  # vptr needs the type information of libtorch's classes, which its libraries do not export.
  address) folder=build-asan sanitizers=address,undefined flags="-fno-sanitize=vptr" modules='core|text|parallel|io|model|engine|train|run|tasks' ;;
  thread) folder=build-tsan sanitizers=thread flags="" modules='parallel|run|engine' ;;
  *) die 64 "unknown sanitizer \"${1:-}\" (nothing was built); write address or thread" ;;
esac
shift
scripts/setup.sh test
mpi_for_tests
step "configure $folder/"
logged .deps/log/configure-$folder.log cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1" \
  -DMAGISTER_TESTS=ON -DMAGISTER_CUDA=OFF -DMAGISTER_UNITY=OFF "-DMAGISTER_SANITIZE=$sanitizers" "-DMAGISTER_SANITIZE_FLAGS=$flags"
step "build $folder/"
mapfile -t targets < <(ninja -C "$folder" -t targets all | sed -nE "s/^(test_($modules)_[a-z0-9_]+|[a-z_]+_probe): phony$/\1/p")
ninja -C "$folder" magister parallel_endings own_task nfs_client "${targets[@]}" || die 70 "the build failed (its messages stand above); fix the code and run the same command again"

support=$MAGISTER_ROOT/tests/support
# Leaks are not checked, since Open MPI and the Python interpreter keep memory until they end. Container overflow is not
# checked, since vectors are passed between instrumented code and libtorch, which is not. The link order is not
# verified, since a test preloads its NFS client before the sanitizer's library.
export ASAN_OPTIONS="detect_leaks=0:detect_container_overflow=0:strict_string_checks=1:verify_asan_link_order=0:${ASAN_OPTIONS:-}"
# The sanitizer intercepts dlopen(), so the program's own run path, by which it finds its plug-in for tables, is not
# searched.
export LD_LIBRARY_PATH="$MAGISTER_ROOT/$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export UBSAN_OPTIONS="print_stacktrace=1:suppressions=$support/undefined_sanitizer.supp:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="suppressions=$support/thread_sanitizer.supp:ignore_noninstrumented_modules=1:history_size=4:${TSAN_OPTIONS:-}"
# If address space randomisation uses more bits than the thread sanitizer's shadow supports, a program ends before
# main().
launcher=()
[ "$folder" != build-tsan ] || launcher=(setarch "$(uname -m)" -R)
# The threads of an emulated GPU block are fibers of one thread (src/device/host_block.cpp). The thread sanitizer does
# not know their stacks and could find nothing, so unit tests that run kernels on the host are excluded one by one.
exclude='^$'
if [ "$folder" = build-tsan ]; then
  exclude='_on_gpu$|gpu_sampler$'
  export GTEST_FILTER='-GpuHead.*:*/Head.*/1:*/TopK.*/1:*/TopK.*/3:*/TopK.*/5:*/TopK.*/7:*/TopK.*/9:*/TopK.*/11'
fi
report=$MAGISTER_ROOT/$folder/tests.xml
rm -f "$report"
[ $# -gt 0 ] || set -- -R "^($modules)/|^end_to_end/whole_job$"
step "ctest $*"
status=0
"${launcher[@]}" ctest --test-dir "$folder" --parallel "$(nproc)" --timeout 1800 --output-on-failure --no-tests=error \
  --output-junit "$report" --test-output-size-passed 200000 -E "$exclude" "$@" || status=$?
step_done
.deps/venv/bin/python scripts/count_tests.py "$report" "$status"
