#!/usr/bin/env bash
# Submits an experiment as a job array of N slices and a merge that starts when all of them are complete.
# usage: jobs/submit-array.sh EXPERIMENT.yaml N [options of sbatch, for example -p gpu --gres=gpu:a100:1]
# Results: runs/<name>-<slice>/<task>.h5 and runs/<name>.h5, with <name> from the experiment's file name. TASK (default
# teacher) and RUNS (default runs) in the environment name the task and the folder when the experiment says otherwise.
set -euo pipefail
if [ $# -lt 2 ] || ! [[ $2 =~ ^[1-9][0-9]*$ ]] || [ ! -f "$1" ]; then
  echo "usage: $0 EXPERIMENT.yaml N [options of sbatch]" >&2
  exit 64
fi
experiment=$1 slices=$2
scripts=$(dirname "$(readlink -f "$0")")
shift 2
name=$(basename "$experiment" .yaml)
parts=()
for ((i = 0; i < slices; i++)); do
  parts+=("${RUNS:-runs}/$name-$i/${TASK:-teacher}.h5")
done
array=$(SLICES=$slices sbatch --parsable --export=ALL "--array=0-$((slices - 1))" "$@" "$scripts/array.sbatch" "$experiment")
# kill-on-invalid-dep: without it a failed slice leaves the merge pending for ever.
merge=$(sbatch --parsable "--dependency=afterok:${array%%;*}" --kill-on-invalid-dep=yes \
  "$scripts/merge.sbatch" "${RUNS:-runs}/$name.h5" "${parts[@]}")
echo "array ${array%%;*} (slices 0-$((slices - 1))), merge ${merge%%;*} -> ${RUNS:-runs}/$name.h5"
