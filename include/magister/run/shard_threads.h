// One thread a shard of this rank: the way in which every task runs its group's model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/unit_tickets.h"

namespace magister {

// Calls body(process group of the shard, first) once a shard, each on a thread of its own (the first on this one), with
// gradients off. An error on one shard destroys its process group, which releases the others; the first error is
// rethrown. Collective over the group.
void run_shards(const GpuGroup& group, const std::function<void(std::unique_ptr<ProcessGroup>, bool first)>& body);

// The group's next unit, the same on every shard; nothing when none is left or the job is asked to stop, which this does
// itself when stop_wanted() says so. Collective over the group.
std::optional<std::uint64_t> claim_for_group(ProcessGroup& group, UnitTickets& tickets,
                                             const std::function<bool()>& stop_wanted);

}  // namespace magister
