// One thread a shard of this rank: the way in which every task runs its group's model.
#pragma once

#include <functional>
#include <memory>

#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"

namespace magister {

// Calls body(process group of the shard, first) once a shard, each on a thread of its own (the first on this one), with
// gradients off. An error on one shard destroys its process group, which releases the others; the first error is
// rethrown. Collective over the group.
void run_shards(const GpuGroup& group, const std::function<void(std::unique_ptr<ProcessGroup>, bool first)>& body);

}  // namespace magister
