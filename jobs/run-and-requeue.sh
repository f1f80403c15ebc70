#!/usr/bin/env bash
# Runs a magister command inside a Slurm job, tells it to stop on a signal, and requeues the job when the command says "resume me".
# usage (in a batch script): exec jobs/run-and-requeue.sh mpirun build/magister run EXPERIMENT.yaml [key.path=value ...]
#
# Slurm sends USR1 some minutes before the time limit (#SBATCH --signal=B:USR1@300) to the batch shell only, hence the
# relay. magister then ends after the current layer, decoding pass or training step, closes the file and ends with 75; the same
# command goes on where it stopped.
# After TERM (scancel, preemption) nothing is requeued here, whether this script got it or magister's ranks alone (scancel --signal=TERM):
# a cancelled job stays cancelled, and Slurm itself requeues what it preempts. Other exit codes are final: 64 usage, 65 data, 70 internal,
# 74 input/output, 78 configuration.
set -uo pipefail
max_restarts=${MAGISTER_MAX_RESTARTS:-50}
restart=${SLURM_RESTART_COUNT:-0}
job=${SLURM_JOB_ID:-none}
# An element of an array is named by both numbers; the bare job id of the last element would requeue the whole array.
[ -n "${SLURM_ARRAY_TASK_ID:-}" ] && job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
say() { printf '[%s] job %s, restart %s: %s\n' "$(date '+%F %T')" "$job" "$restart" "$*" >&2; }

# magister writes there what has stopped it, as it does into run.jsonl: a signal that went to its ranks is not seen here.
MAGISTER_STOP_FILE=$(mktemp -t magister-stop.XXXXXX) || MAGISTER_STOP_FILE=
export MAGISTER_STOP_FILE
trap '[ -z "$MAGISTER_STOP_FILE" ] || rm -f "$MAGISTER_STOP_FILE"' EXIT

say "on ${SLURM_JOB_NODELIST:-$(hostname)}: $*"
"$@" &
child=$!
interrupted=0
terminated=0
pass_on() {
  interrupted=1
  [ "$1" = TERM ] && terminated=1
  say "signal $1: asking magister to stop"
  # USR1 whatever came: mpirun and srun hand it to their ranks, while a TERM of their own makes mpirun kill them two seconds later, and srun at once.
  kill -s USR1 "$child" 2>/dev/null
}
for signal in USR1 USR2 TERM; do
  # shellcheck disable=SC2064
  trap "pass_on $signal" "$signal"
done

# A signal ends `wait` early with a status above 128; only a wait without an interruption gives the command's own status.
while true; do
  interrupted=0
  wait "$child"
  status=$?
  [ "$interrupted" -eq 1 ] || break
done

say "ended with $status"
[ -n "$MAGISTER_STOP_FILE" ] && grep -qs '^signal 15 ' "$MAGISTER_STOP_FILE" && terminated=1
if [ "$terminated" -eq 1 ] && [ "$status" -ne 0 ]; then
  # scancel without --signal also sends TERM to mpirun, which leaves its ranks two seconds.
  [ "$status" -eq 75 ] || say "TERM reached the launcher, too, and it ended its ranks before they had stopped; what was not committed is computed again"
  say "not requeued after TERM; submit the same script again to continue"
elif [ "$status" -eq 75 ] && [ "$job" != none ]; then
  if [ "$restart" -ge "$max_restarts" ]; then
    say "not requeued: MAGISTER_MAX_RESTARTS=$max_restarts is reached; submit the same script again to continue"
  elif scontrol requeue "$job"; then
    say "requeued"
    # Slurm ends this script now; without the pause the job could be counted as failed first. A shell heeds TERM in `wait`, not behind a command's end.
    sleep 60 &
    while [ "$terminated" -eq 0 ] && kill -0 $! 2>/dev/null; do wait $!; done
    kill $! 2>/dev/null
  else
    say "scontrol requeue failed; submit the same script again to continue"
  fi
fi
exit "$status"
