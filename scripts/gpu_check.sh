#!/usr/bin/env bash
# Tests and measures the GPU path on this machine, in a bundle (scripts/bundle.sh) or beside a build folder, and writes ONE
# report, gpu_report.md with gpu_report.json beside it, anew after every step: what is cut off loses nothing that had ended.
# usage: scripts/gpu_check.sh [--only tests|sanitizer|table] [--seconds 470] [--build build] [--report gpu_report.md] [--small SHAPE]
# The report goes to $OUT when that is set. --small llama-3.2-1b: a quick look with 1B instead of 8B. MAGISTER_PYTHON: the
# Python with torch, transformers, h5py. Exit code: 0 when no test failed, 1 when one did, 77 when there is no GPU.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
only=all seconds=470 build=$root/build report=${OUT:-.}/gpu_report.md small=
while [ $# -gt 0 ]; do
  case $1 in
    --only) only=$2 ;;
    --seconds) seconds=$2 ;;
    --build) build=$2 ;;
    --report) report=$2 ;;
    --small) small=$2 ;;
    *) printf 'gpu_check.sh: %s is not an option (a check measures what its options say); see the head of the script\n' "$1" >&2; exit 64 ;;
  esac
  shift 2 || { printf 'gpu_check.sh: an option has no value (each takes one); see the head of the script\n' >&2; exit 64; }
done
deadline=$(($(date +%s) + seconds))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${MAGISTER_PYTHON:-python3}
if [ -d "$root/libexec" ]; then
  bin=$root/bin
  export PATH="$bin:$PATH" MAGISTER=$bin/magister MAGISTER_SOURCE_DIR=$root
  kernels=$bin/test_gpu_kernels model=$bin/test_gpu_model
else
  [ -n "${MAGISTER_PYTHON:-}" ] || [ ! -x "$root/.deps/venv/bin/python" ] || python=$root/.deps/venv/bin/python
  export MAGISTER=$build/magister MAGISTER_SOURCE_DIR=$root
  kernels=$build/tests/gpu/test_gpu_kernels model=$build/tests/gpu/test_gpu_model
fi
export MAGISTER_PYTHON=$python PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
reporter=$root/tests/bench/gpu_report.py
worst=0

write_report() { "$python" "$reporter" write --work "$work" --report "$report"; }

record() {  # record NAME CODE SECONDS LIMIT COMMAND
  printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$work/steps.tsv"
}

step() {  # step NAME LIMIT COMMAND...: at most LIMIT seconds, and never past the deadline
  local name=$1 limit=$2 begin code=0 left
  shift 2
  begin=$(date +%s)
  left=$((deadline - begin - 5))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -lt 3 ]; then
    printf 'no time left\n' >"$work/$name.log"
    record "$name" 200 0 "$limit" "$*"
  else
    timeout -k 5 "$limit" "$@" >"$work/$name.log" 2>&1 || code=$?
    record "$name" "$code" "$(($(date +%s) - begin))" "$limit" "$*"
    printf '== %s: exit code %s, %s s\n' "$name" "$code" "$(($(date +%s) - begin))"
    tail -n 3 "$work/$name.log" | sed 's/^/   /'
    case $code in 0) ;; 77) [ "$worst" -ne 0 ] || worst=77 ;; *) worst=1 ;; esac
  fi
  write_report
}

# Few and small cases: a sanitizer makes a kernel 10 to 100 times slower. ATen's allocator would hide accesses beyond a tensor.
sanitize() {  # sanitize TOOL LIMIT
  if ! command -v compute-sanitizer >/dev/null; then
    printf 'not measured: compute-sanitizer is not installed\n' >"$work/$1.log"
    record "$1" 200 0 "$2" "compute-sanitizer --tool $1"
    write_report
    return
  fi
  local filter='Elementwise*:Head.*:*Products.*_k72_*:*Products.*_k77_*:*Products.*_k96_*:*Products.*_k107_*:*Products.*_k160_*'
  filter+=':*Attention.*h6_k2_e80_w0:*Attention.*h5_k1_e256_w0:*Attention.*h3_k1_e6_w0:*Attention.*h4_k1_e64_w100'
  step "$1" "$2" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$1" --error-exitcode 9 --target-processes all "$kernels" \
    --gtest_filter="$filter"
}

# Its rows say themselves what has no number; the report is written again after every one.
measure() {
  local begin left code=200
  begin=$(date +%s)
  left=$((deadline - begin))
  if [ "$left" -gt 10 ]; then
    timeout -k 5 "$left" "$python" "$reporter" measure --work "$work" --program "$MAGISTER" --root "$root" --report "$report" \
      --deadline $((deadline - 5)) ${small:+--small "$small"} 2>&1 | tee "$work/table.log"
    code=${PIPESTATUS[0]}
    case $code in 0 | 124 | 137) ;; *) worst=1 ;; esac
  fi
  record table "$code" "$(($(date +%s) - begin))" "$left" "gpu_report.py measure"
}

"$python" "$reporter" machine --work "$work" --program "$MAGISTER"
case $only in
  all | tests)
    step kernels 60 "$kernels"
    step model 90 "$model"
    step tasks 200 "$python" "$root/tests/gpu/tasks_test.py"
    ;;&
  all | sanitizer)
    sanitize memcheck 60
    sanitize racecheck 60
    ;;&
  all | table)
    if "$MAGISTER" doctor --json 2>/dev/null | grep -q '"uuid"'; then
      measure
    else
      printf 'skipped: no GPU\n' >"$work/table.log"
      record table 77 0 0 "gpu_report.py measure"
      [ "$worst" -ne 0 ] || worst=77
    fi
    ;;
esac
write_report
printf '== report: %s\n' "$report"
exit "$worst"
