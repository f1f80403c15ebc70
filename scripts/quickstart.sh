#!/usr/bin/env bash
# From a fresh clone to a first results file: installs what is missing, builds build/magister, computes the teacher's
# log-probabilities of a small data set on two MPI ranks, and shows the file. It may be repeated.
# usage: scripts/quickstart.sh
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
scripts/setup.sh run
build magister
allow_mpi_as_root
result=runs/quickstart/teacher.h5

step "run configs/quickstart.yaml on 2 ranks"
status=0
mpirun --oversubscribe -np 2 build/magister run configs/quickstart.yaml || status=$?
[ "$status" -eq 0 ] || exit "$status"
step "magister info $result"
build/magister info "$result"
step "h5dump -H $result (without attributes)"
h5dump -H -A 0 "$result"
step_done
printf '== ready: %s, %s s in all\n' "$result" "$(seconds_since "$script_begin")"
