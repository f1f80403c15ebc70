#!/usr/bin/env bash
# Measures and tests the GPU path on this machine, in a bundle (scripts/bundle.sh) or with a build folder, and writes
# ONE report, gpu_report.md with gpu_report.json next to it. It is rewritten after every step, so if the check is cut
# off, the finished steps are kept.
# usage: scripts/gpu_check.sh [--only table|layer|tests|quick|sanitizer|train|jobs|decoding|judge|judge_int8|kv_cache] [--seconds 470] [--build build]
#                             [--report gpu_report.md] [--small SHAPE] [--dry-run]
# table: ratios with floors and aims. layer: a pass part by part (bench layer). tests: every suite in a separate
# process, NCCL, whole runs, two tasks in one job. sanitizer: memcheck, racecheck and synccheck of our kernels. Each
# alone fits into 8 minutes; together they share --seconds, the table first; tests/bench/gpu_report.py join combines
# several reports. The report goes to $OUT if that is set.
# Only on request, each within 4 minutes: train (trainings against torch), jobs (whole jobs against transformers),
# decoding (texts by each way of decoding), kv_cache (texts of a job with keys and values in fp8 and without), judge and
# judge_int8 (256 prompts judged by 70B in fp8 and in int8); and quick, within 2 minutes and to be run before them:
# kernels and whole trainings against those of the CPU.
# --small llama-3.2-1b: a quick measurement with 1B instead of 8B.
# --dry-run: every step with tiny shapes and the GPU's code on the host; fails if a step fails, is cut off or has no
# number.
# MAGISTER_PYTHON: the Python with torch, transformers, h5py. Exit code: 0 if nothing failed, 1 if something did, 77
# without a GPU, 64 for a wrong option and 74 if no report can be written, both before anything is measured.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
only=all seconds=470 build=$root/build report=${OUT:-.}/gpu_report.md small='' dry=''
usage_error() {
  printf 'gpu_check.sh: %s (%s); see the head of the script\n' "$1" "$2" >&2
  exit 64
}
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run)
      dry=yes
      shift
      continue
      ;;
    -h | --help)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --only | --seconds | --build | --report | --small) [ $# -ge 2 ] || usage_error "$1 has no value" "it takes one" ;;&
    --only) only=$2 ;;
    --seconds) seconds=$2 ;;
    --build) build=$2 ;;
    --report) report=$2 ;;
    --small) small=$2 ;;
    *) usage_error "$1 is not an option" "a check measures what its options say" ;;
  esac
  shift 2
done
case $only in
  all | layer | table | tests | quick | sanitizer | train | jobs | decoding | judge | judge_int8 | kv_cache) ;;
  *) usage_error "--only $only" "layer, table, tests, quick, sanitizer, train, jobs, decoding, judge, judge_int8 or kv_cache" ;;
esac
[[ $seconds =~ ^[0-9]{1,6}$ ]] || usage_error "--seconds $seconds" "a whole number of seconds"
[ -z "$small" ] || [ -f "$root/configs/shapes/$small/config.json" ] || usage_error "--small $small" "a folder of configs/shapes"
[ -d "$root/libexec" ] || [ -x "$build/magister" ] || usage_error "--build $build" "there is no program magister in it"
if ! mkdir -p "$(dirname "$report")" || ! touch "$report"; then
  printf 'gpu_check.sh: %s cannot be written (what is measured would be lost); name another --report\n' "$report" >&2
  exit 74
fi
begin_all=$(date +%s)
deadline=$((begin_all + seconds))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${MAGISTER_PYTHON:-python3}
if [ -d "$root/libexec" ]; then
  bin=$root/bin
  export PATH="$bin:$PATH" MAGISTER=$bin/magister MAGISTER_SOURCE_DIR=$root
  tests=$bin
else
  [ -n "${MAGISTER_PYTHON:-}" ] || [ ! -x "$root/.deps/venv/bin/python" ] || python=$root/.deps/venv/bin/python
  export MAGISTER=$build/magister MAGISTER_SOURCE_DIR=$root
  tests=$build/tests/gpu
fi
gpu=$tests/test_gpu nccl=$tests/test_gpu_nccl
export MAGISTER_PYTHON=$python PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
bench=$root/tests/bench
options=()  # of the reporter
if [ -n "$dry" ]; then
  "$python" "$bench/gpu_dry_run.py" "$work/dry" || exit 1
  export PATH="$work/dry/bin:$PATH" MAGISTER_GPU_CODE_ON_HOST=1 OMP_NUM_THREADS=1
  options=(--shapes "$work/dry/shapes" --device host --tiny)
fi
worst=0

reporter() {  # reporter WHAT OPTION...
  "$python" "$bench/gpu_report.py" "$1" --work "$work" "${@:2}" ${options[@]+"${options[@]}"}
}
write_report() {  # a dry run writes it once, at the end
  [ -n "$dry" ] || reporter write --report "$report"
}

record() {  # record NAME CODE SECONDS LIMIT COMMAND
  printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$work/steps.tsv"
}

count() {  # count CODE [LOG]: adds to the script's exit code; in a dry run every step must run
  case $1 in
    0) ;;
    77)
      if [ -n "$dry" ]; then
        worst=1
      elif [ "$worst" -eq 0 ] && grep -qx 'skipped: no GPU' "${2:-/dev/null}"; then
        worst=77
      fi
      ;;
    124 | 137 | 200) [ -z "$dry" ] || worst=1 ;;
    *) worst=1 ;;
  esac
}

step() {  # step NAME LIMIT COMMAND...: at most LIMIT seconds, and never past the deadline
  local name=$1 limit=$2 begin code=0 left
  shift 2
  begin=$(date +%s)
  left=$((deadline - begin - 5))
  # Limits are for a GPU; the host may be busy with other work.
  [ -z "$dry" ] || limit=$((limit * 10))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -lt 3 ]; then
    printf 'no time left\n' >"$work/$name.log"
    code=200
    record "$name" 200 0 "$limit" "$*"
  else
    timeout -k 5 "$limit" "$@" >"$work/$name.log" 2>&1 || code=$?
    ! grep -q '^\[=*\] Running 0 tests' "$work/$name.log" || code=1  # a filter without matches
    record "$name" "$code" "$(($(date +%s) - begin))" "$limit" "$*"
    printf '== %s: exit code %s, %s s\n' "$name" "$code" "$(($(date +%s) - begin))"
    if [ "$code" -eq 0 ]; then tail -n 3 "$work/$name.log"; else tail -n 30 "$work/$name.log"; fi | sed 's/^/   /'
    case $code in 124 | 137) worst=1 ;; esac
  fi
  count "$code" "$work/$name.log"
  write_report
}

# Reads doctor's output, since its exit code may report something else, such as the network.
has_gpu() {
  local said
  [ -z "$dry" ] || return 0
  said=$("$MAGISTER" doctor --json 2>/dev/null || true)
  [[ $said == *'"uuid"'* ]]
}

# The report's rows tell which numbers are missing; the report is rewritten after every row.
measure() {  # measure PART SHARE: SHARE is in per cent of the remaining time, if other parts follow
  local begin left code=200
  begin=$(date +%s)
  left=$((deadline - begin))
  [ "$only" != all ] || left=$((left * $2 / 100))
  if ! has_gpu; then
    printf 'skipped: no GPU\n' >"$work/$1.log"
    code=77
  elif [ "$left" -gt 10 ]; then
    timeout -k 5 "$left" "$python" "$bench/gpu_report.py" measure --part "$1" --work "$work" --program "$MAGISTER" --root "$root" \
      --report "$report" --deadline $((begin + left - 5)) ${small:+--small "$small"} ${options[@]+"${options[@]}"} 2>&1 | tee "$work/$1.log"
    code=${PIPESTATUS[0]}
  fi
  record "$1" "$code" "$(($(date +%s) - begin))" "$left" "gpu_report.py measure --part $1"
  count "$code" "$work/$1.log"
  write_report
}

# Runs each suite in a separate process, since after a fault every later CUDA call of a process fails. A dry run takes
# the first test of a suite; suites that emulate whole models for minutes are only listed, since gpu/model_on_host runs
# them.
suites() {  # suites NAME LIMIT FILTER
  local name=$1 limit=$2 listed=0 suite filter only_names
  "$gpu" --gtest_list_tests --gtest_filter="$3" >"$work/$name.list" 2>&1 || listed=$?
  if [ "$listed" -ne 0 ] || ! grep -q '^[^ ]*\.' "$work/$name.list"; then
    step "$name" 30 "$gpu" --gtest_list_tests
    return
  fi
  for suite in $(sed -n 's/^\([^ ]*\)\..*/\1/p' "$work/$name.list"); do
    filter="$suite.*"
    [ -z "$dry" ] || filter=$suite.$(awk -v suite="$suite." '$1 == suite { found = 1; next } found { print $1; exit }' "$work/$name.list")
    only_names=
    [ -z "$dry" ] || [[ $suite != Gpu* ]] || only_names=--gtest_list_tests
    step "${name}_${suite//\//_}" "$limit" "$gpu" --gtest_filter="$filter" $only_names
  done
}

# The part `tests`; a dry run replaces some of its steps by tiny ones.
run_tests() {
  local few=()
  # includes the CPU's run before it, and the imports
  [ -z "$dry" ] || few=(Teacher.test_two_ranks_on_one_gpu_are_refused)
  suites kernels 60 '-*Gpu*'
  suites model 90 '*Gpu*'
  step nccl_one_rank 40 mpirun --bind-to none -np 1 "$nccl"
  step nccl_two_ranks 60 mpirun --oversubscribe --bind-to none -np 2 "$nccl"
  if has_gpu; then
    step chain 150 "$python" "$bench/gpu_chain.py" --program "$MAGISTER" --root "$root" --work "$work" \
      ${dry:+--tiny --shape "$work/dry/shapes/llama-3.2-1b"}
  fi
  step tasks 200 "$python" "$root/tests/gpu/tasks_test.py" ${few[@]+"${few[@]}"}
}

# The checks that must pass before a training or a job is measured. The kernels run in one process: after a fault its
# log names the kernel, and the part `tests` examines the rest.
run_quick() {
  local kernels='-*Gpu*' few=(Training Teacher.test_bf16_is_near_and_repeats)
  [ -z "$dry" ] || kernels='Elementwise/1.EmbedRows*' few=(Teacher.test_two_ranks_on_one_gpu_are_refused)
  step quick_kernels 60 "$gpu" --gtest_filter="$kernels"
  step quick_tasks 90 "$python" "$root/tests/gpu/tasks_test.py" "${few[@]}"
}

# Searches PATH, the folders of toolkits and NVIDIA's wheel.
find_sanitizer() {
  local folder place
  command -v compute-sanitizer && return
  for folder in "${CUDA_HOME:-/usr/local/cuda}" "${CUDA_PATH:-/usr/local/cuda}" /usr/local/cuda* /opt/cuda* \
    "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/nvidia/*; do
    for place in "$folder/bin/compute-sanitizer" "$folder/compute-sanitizer/compute-sanitizer"; do
      if [ -x "$place" ]; then
        printf '%s\n' "$place"
        return
      fi
    done
  done
  return 1
}

# For a dry run: a pattern that matches no test would silently test nothing.
every_pattern_fits() {  # every_pattern_fits FILTER
  local names patterns pattern name fits
  names=$("$gpu" --gtest_list_tests | awk '/^[^ ]/ { suite = $1; next } { print suite $1 }')
  IFS=: read -ra patterns <<<"$1"
  for pattern in "${patterns[@]}"; do
    fits=
    for name in $names; do
      # shellcheck disable=SC2053  # a pattern it is
      [[ $name != $pattern ]] || { fits=yes && break; }
    done
    [ -n "$fits" ] || { printf 'gpu_check.sh: %s fits no test (a dry run looks); correct the filter\n' "$pattern" && worst=1; }
  done
}

# Checks only our kernels (all are named run_kernel<...>), with few and small cases, since a sanitizer makes a kernel 10
# to 100 times slower; the decoder, its graph and the head run in a small model. ATen's caching allocator is off,
# because it would hide accesses beyond a tensor.
sanitize() {  # sanitize TOOL
  local sanitizer command part filter limit
  if ! sanitizer=$(find_sanitizer); then
    printf 'not measured: compute-sanitizer is not installed\n' >"$work/$1.log"
    record "$1" 200 0 150 "compute-sanitizer --tool $1"
    count 200
    write_report
    return
  fi
  command=(env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" --tool "$1" --error-exitcode 9 --target-processes all
    --kernel-name kernel_substring=run_kernel)
  for part in kernels model; do
    if [ "$part" = kernels ]; then
      limit=90
      filter='Elementwise*:Head.*:Sampler.*:*Products.*_k72_*:*Products.*_k77_*:*Products.*_k96_*:*Products.*_k107_*:*Products.*_k160_*'
      filter+=':*Attention.*h6_k2_e80_w0:*Attention.*h5_k1_e256_w0:*Attention.*h3_k1_e6_w0:*Attention.*h4_k1_e64_w100'
      filter+=':*GroupedAttentionOnBoth.*h8_k2_e128_w0:*GroupedAttentionOnBoth.*h5_k1_e256_w0'
      filter+=':CodePages.*:*AttentionOverCodes.*h6_k2_e80_w0:PairedProduct.*:DecodingExperts.PackMxfp4:*CodedRows.*_k96_*'
    else
      limit=60
      filter='*CachedDecodingIsTheWholePass/llama_bf16:GpuGraphs.*:GpuHead.*'
    fi
    if [ -n "$dry" ]; then
      every_pattern_fits "$filter"
      if [ "$part" = model ]; then filter='*.SelfTestPasses/llama_bf16'; else filter='Elementwise/1.EmbedRows*'; fi
    fi
    step "$1_$part" "$limit" "${command[@]}" "$gpu" --gtest_filter="$filter"
  done
}

reporter machine --program "$MAGISTER" || count 1
# The table is first, so that its rows are in the report whatever is cut off or fails afterwards.
case $only in all | table) measure table 50 ;; esac
case $only in all | layer) measure layer 60 ;; esac
case $only in train | jobs | decoding | judge | judge_int8 | kv_cache) measure "$only" 100 ;; esac
case $only in all | tests) run_tests ;; esac
case $only in quick) run_quick ;; esac
case $only in all | sanitizer) for tool in memcheck racecheck synccheck; do sanitize "$tool"; done ;; esac
complete=
case $only in all | table | train | jobs | decoding | judge | judge_int8 | kv_cache) complete=--complete ;; esac
reporter write --report "$report" $complete || count 1
printf '== report: %s, %s s\n' "$report" "$(($(date +%s) - begin_all))"
exit "$worst"
