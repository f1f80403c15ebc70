// Step: what an experiment runs and plans. A task over units is one kind of step (TaskRunner). A task that has no data
// set, no units or no results file - a service, for example - makes a step of its own (Task::step()).
#pragma once

#include "magister/core/error.h"
#include "magister/run/plan_report.h"

namespace magister {

// What a step takes of the job, as far as it is known before it runs. The same on every rank.
struct StepCost {
  int ranks_a_group = 1;      // all ranks where groups have unlike numbers
  int threads_per_shard = 0;  // 0: not known
  int host_shards = 0;        // on the host
  // FLOPs, a guess from the number of records, to compare with the experiment's other steps. Without a model: records.
  double work = 0;
  int most_groups = 1;  // more than these would find nothing to do
};

// Made when the experiment is opened: a constructor checks everything that can be checked before anything computes.
class Step {
 public:
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // True if the step stands on a placeholder for what an earlier one makes: make another when that has run.
  virtual bool awaits_earlier() const { return false; }
  virtual StepCost cost() const { return {}; }
  // Runs or resumes. kDone or kStopped, the same on every rank. Collective over the world of its RunContext.
  virtual ExitCode run() = 0;
  // Everything but compute. Writes nothing. Complete on rank 0. Collective over the world of its RunContext.
  virtual PlanReport plan() = 0;

 protected:
  Step() = default;
};

}  // namespace magister
