# Functions that the scripts share; sourced, never run. Each step is announced with its name and closed with its time,
# so that the log shows where the time went. Must be sourced from a script in scripts/.
set -euo pipefail
MAGISTER_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$MAGISTER_ROOT"

step_name=
step_begin=0
script_begin=$(date +%s.%N)

seconds_since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }

step() {  # step NAME: closes the previous step and opens the next
  step_done
  step_name=$1
  step_begin=$(date +%s.%N)
  printf '== %s\n' "$step_name"
}

step_done() {
  if [ -n "$step_name" ]; then
    printf '   %s: %s s\n' "$step_name" "$(seconds_since "$step_begin")"
    step_name=
  fi
}

die() {  # die EXIT_CODE MESSAGE: prints one message on standard error, in the form of the program's messages
  printf '%s: %s\n' "$(basename "$0")" "$2" >&2
  exit "$1"
}

# Runs a command into a log file and shows the end of the log only if it fails.
logged() {  # logged LOG COMMAND...
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    die 74 "\`$*\` ended with status $status (its last lines stand above); the whole log is $log"
  fi
}

# Open MPI refuses to start as root unless two variables allow it; containers and CI are often root. Only scripts set
# them.
allow_mpi_as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
}

# Tests start MPI thousands of times on one machine. Without a search for network cards a job of two ranks starts 0.2 s
# sooner (of 0.65 s), and one with a dead rank ends at once instead of a second after its other ranks were asked to
# stop. Waiting ranks yield, since several tests share the cores and a spinning rank occupies one of them.
mpi_for_tests() {
  allow_mpi_as_root
  # Every mpirun of a user on a host makes this folder and removes it when it is empty, also between two steps of
  # another mpirun's start, which then fails (5 of 3,463 starts with three at a time, 2026-11). A folder that is not
  # empty is kept.
  mkdir -p "${TMPDIR:-/tmp}/ompi.$(uname -n | cut -d . -f 1).$(id -u)/kept"
  # The launcher's data reach its ranks by messages instead of shared memory with locks: a rank killed while it held
  # such a lock kept it for ever, and its mpirun hung after its last rank had ended (pmix_rte_finalize, once in some
  # hundred kills).
  export PMIX_MCA_gds=hash
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_odls_base_sigkill_timeout=0 OMPI_MCA_mpi_yield_when_idle=1
}

# Wheels are installed without bytecode. If the environment forbids writing it, as many containers do, every interpreter
# compiles 2,000 sources again: an import of transformers takes 11 s of processor time instead of 5. The bytecode is
# written to a separate folder, so that sources and tests stay unchanged.
bytecode_for_tests() {
  export PYTHONPYCACHEPREFIX=$MAGISTER_ROOT/.deps/bytecode
  unset PYTHONDONTWRITEBYTECODE
}

# All scripts use one build folder. Units of forty files need up to 1.5 GB each while they compile, so the memory limits
# the jobs, too.
build() {  # build TARGET...
  local jobs memory_jobs
  jobs=$(nproc)
  memory_jobs=$(awk '/MemAvailable/ { n = int($2 / 1600000); print n < 1 ? 1 : n }' /proc/meminfo)
  [ "$jobs" -le "$memory_jobs" ] || jobs=$memory_jobs
  step "configure build/"
  # Without the packages that only tests need (scripts/setup.sh run) the tests are not configured.
  logged .deps/log/configure.log cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DMAGISTER_TESTS="$(grep -q '^test ' .deps/venv/.sets 2>/dev/null && echo ON || echo OFF)" \
    -DMAGISTER_CUDA="${MAGISTER_CUDA:-AUTO}"
  grep -E '^-- GPU code' .deps/log/configure.log | sed 's/^-- /   /' || true
  ! grep -q '^-- GPU code: OFF' .deps/log/configure.log || [ "${MAGISTER_CUDA:-AUTO}" = OFF ] ||
    printf '   no GPU is seen here, so the program is built for CPUs; for other machines: MAGISTER_CUDA=ON and the same command\n'
  step "build $* ($jobs jobs)"
  cmake --build build --parallel "$jobs" --target "$@" || die 70 "the build failed (its messages stand above); fix the code and run the same command again"
}
