// Work that every rank does its part of, after which all ranks go on or all throw the same error: nobody waits for a rank
// that has left, and the message is said once.
#pragma once

#include <functional>

#include "magister/parallel/communicator.h"

namespace magister {

// Runs work() on this rank. When it throws on any rank, the first of these ranks' errors is thrown on all.
// Collective over world; work itself must not communicate.
void run_agreed(const Communicator& world, const std::function<void()>& work);

}  // namespace magister
