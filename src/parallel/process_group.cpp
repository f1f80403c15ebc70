// What all backends share.
#include "magister/parallel/process_group.h"

namespace magister {

ShardAbandoned::ShardAbandoned()
    : Error(ExitCode::kInternal,
            "another shard of this rank failed (its part of the sum is missing); see its message") {}

}  // namespace magister
