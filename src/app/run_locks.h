// RunLocks: a start of an experiment takes the locks of all results that it is going to write before any task begins, or none of them. Else
// two starts of one experiment would each get some, and both fail on the other's.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "magister/app/experiment.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"

namespace magister {

class RunLocks {
 public:
  // In the order of the names: of two starts that share some results one gets all of its own. Complete results are only read and not
  // locked, so that starts of other tasks may share them; fresh: none counts as complete. Throws Error(kInputOutput) naming who holds
  // one. Collective over world.
  RunLocks(const Communicator& world, const Experiment& experiment, bool fresh);

  // Whether rank 0 holds the task's, until it is released. The same on every rank.
  bool holds(std::size_t task) const { return held_[task]; }
  // The task has ended; its own ranks hold their locks as long as they write. Local.
  void release(std::size_t task) { locks_[task].reset(); }

 private:
  std::vector<bool> held_;
  std::vector<std::optional<ResultsLock>> locks_;  // on rank 0; else none
};

}  // namespace magister
