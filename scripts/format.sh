#!/usr/bin/env bash
# Formats the C++ sources by .clang-format, with the version of scripts/requirements/test.in. usage: scripts/format.sh
# [--check]
# --check changes nothing and prints the lines that differ; exit status 1 if there are any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
options=(-i)
[ "${1:-}" != --check ] || options=(--dry-run --Werror)
# Generated tables stay as their generators write them.
find src include tests scripts -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) \
  ! -name unicode_tables.inc ! -name pattern_tables.inc ! -name case_table.h -print0 | xargs -0 .deps/venv/bin/clang-format "${options[@]}"
