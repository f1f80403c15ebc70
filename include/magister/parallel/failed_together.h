// Tells an error that all ranks have met from the error of some: the same one reaches all at nearly the same time.
#pragma once

#include "magister/parallel/communicator.h"

namespace magister {

// Returns whether all ranks come here within 0.7 s. failed: a communicator for this only; if not all come, its barrier
// stays begun, and the job must end. Collective over failed.
bool all_failed(const Communicator& failed);

}  // namespace magister
