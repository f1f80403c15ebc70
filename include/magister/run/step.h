// Step: what an experiment runs and plans. A task over units is one kind of step (TaskRunner). A task that has no data
// set, no units or no results file - a service, for example - makes a step of its own (Task::step()).
#pragma once

#include "magister/core/error.h"
#include "magister/run/plan_report.h"

namespace magister {

// The resources that a step uses, as far as they are known before it runs. The same on every rank.
struct StepCost {
  int ranks_a_group = 1;      // all ranks if the groups differ in their number of ranks
  int threads_per_shard = 0;  // 0: not known
  int host_shards = 0;        // shards on the host
  // FLOPs, estimated from the number of records, to compare with the experiment's other steps. Without a model: the
  // number of records.
  double work = 0;
  int most_groups = 1'000'000;  // further groups would have nothing to do
};

// Made when the experiment is opened: a constructor checks everything that can be checked before anything computes.
class Step {
 public:
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // True if the step was opened with a placeholder for something that an earlier step makes. It must be opened again
  // when that step has run.
  virtual bool awaits_earlier() const { return false; }
  virtual StepCost cost() const { return {}; }
  // Runs or resumes. kDone or kStopped, the same on every rank. Collective over the world of its RunContext.
  virtual ExitCode run() = 0;
  // Does everything except compute, and writes nothing. The report is complete on rank 0. Collective over the world of
  // its RunContext.
  virtual PlanReport plan() = 0;

 protected:
  Step() = default;
};

}  // namespace magister
