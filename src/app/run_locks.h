// RunLocks: a start of an experiment takes the locks of all results that it will write before any task begins, or none
// of them. Otherwise two starts of one experiment could each get some of the locks, and both would fail.
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
  // Takes the locks in the order of the names, so that of two starts which share some results one gets all of its
  // locks. Complete results are only read and not locked, so that starts of other tasks may share them; fresh: no
  // results count as complete. Throws Error(kInputOutput) that names the holder of a lock. Collective over world.
  RunLocks(const Communicator& world, const Experiment& experiment, bool fresh);

  // True if rank 0 took the lock of this task at the start. The same on every rank.
  bool holds(std::size_t task) const { return held_[task]; }
  // Releases the lock of a task that has ended; the task's own ranks hold their locks while they write. Local.
  void release(std::size_t task) { locks_[task].reset(); }

 private:
  std::vector<bool> held_;
  std::vector<std::optional<ResultsLock>> locks_;  // on rank 0; else none
};

}  // namespace magister
