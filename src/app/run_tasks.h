// Runs the tasks of an experiment: one after the other, or several at the same time, each over a part of the world.
#pragma once

#include "app/commands.h"
#include "app/run_locks.h"
#include "magister/app/experiment.h"
#include "magister/run/run_log.h"

namespace magister {

class Monitor;

// Runs the tasks that are not done yet. Returns kDone, or the code of the first task, in the experiment's order, that
// failed. A task that fails on all of its ranks ends neither the other tasks nor the job, and tasks that need it are
// left out with a warning; one that fails on only some ranks ends the job. Returns kStopped if the job was asked to
// stop. start: the id of this start in the log, which ranks other than 0 need for their events. locks: the locks of
// these tasks, each released when its task has ended. Collective over the world.
ExitCode run_tasks(const Invocation& call, const Experiment& experiment, RunLog& log, Monitor& monitor,
                   const std::string& start, bool fresh, RunLocks& locks);

}  // namespace magister
