// The tasks of an experiment run: one after the other, or several at once, each over a part of the world.
#pragma once

#include "app/commands.h"
#include "app/run_locks.h"
#include "magister/app/experiment.h"
#include "magister/run/run_log.h"

namespace magister {

// Runs what is not there yet. kDone, or the code of the first task, in the experiment's order, that failed: a task that fails on all ranks that
// work at it ends neither the others nor the job, and what needs it is left out, by name; one that fails on some ranks alone ends the job.
// kStopped when the job was asked to stop. start: log's, which other ranks than 0 need for the events of theirs. locks: of these tasks, each released when its task has ended. Collective over the world.
ExitCode run_tasks(const Invocation& call, const Experiment& experiment, RunLog& log, const std::string& start,
                   bool fresh, RunLocks& locks);

}  // namespace magister
