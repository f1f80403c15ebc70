// What all backends share.
#include "magister/parallel/process_group.h"

#include "magister/parallel/gpu.h"

namespace magister {

ShardAbandoned::ShardAbandoned()
    : Error(ExitCode::kInternal,
            "another shard of this rank failed (its part of the sum is missing); see its message") {}

void ProcessGroup::wait_for(const GpuEvent& event) { event.wait(); }

}  // namespace magister
