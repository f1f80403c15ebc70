#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test. The last line is "N passed, N failed, N skipped" (lines
# above it give the reason of each skip); the exit status is 0 only if at least one test ran and none failed.
# usage: scripts/test.sh [arguments of ctest, for example -R engine]
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
scripts/setup.sh test
build all
mpi_for_tests
bytecode_for_tests
report=$MAGISTER_ROOT/build/tests.xml
rm -f "$report"

step "ctest $*"
status=0
# Runs wait for each other and for files: with two tests at a time a third of two cores is idle (CI took 42 minutes,
# 2026-11).
ctest --test-dir build --parallel "$(($(nproc) * 3 / 2))" --output-on-failure --no-tests=error --output-junit "$report" \
  --test-output-size-passed 200000 "$@" || status=$?
step_done
printf '   %s s in all\n' "$(seconds_since "$script_begin")"
.deps/venv/bin/python scripts/count_tests.py "$report" "$status"
