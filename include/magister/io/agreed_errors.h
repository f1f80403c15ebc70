// Runs a step on every rank; then all ranks go on, or all throw the same error. So no rank waits for one that has left,
// and the message appears once.
#pragma once

#include <functional>

#include "magister/parallel/communicator.h"

namespace magister {

// Runs work() on this rank. If it throws on any rank, all ranks throw the error of the lowest such rank. Collective
// over world; work itself must not communicate.
void run_agreed(const Communicator& world, const std::function<void()>& work);

// Runs work() on rank 0, however long it takes: the others sleep. If it throws, all ranks throw its error. Collective
// over world; work itself must not communicate.
void run_on_rank_zero(const Communicator& world, const std::function<void()>& work);

}  // namespace magister
