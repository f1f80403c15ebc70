// Runs each shard of this rank on a thread of its own: every task runs its group's model in this way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/unit_tickets.h"

namespace magister {

// A shard's place in its rank.
struct ShardPlace {
  int group = 0;      // index among the groups of the rank
  bool first = true;  // the first of its group's shards in the rank
};

// Calls body(process group of the shard, its place) once for each shard of this rank, each on a thread of its own (the
// first on the calling thread), with its GPU as the thread's current device and with gradients off. An error on one
// shard destroys its process group, which releases the other shards of its group. Other groups of the rank end as if
// they were asked to stop. The first error is rethrown. Collective over the group.
void run_shards(const GpuGroup& group, UnitTickets& tickets,
                const std::function<void(std::unique_ptr<ProcessGroup>, ShardPlace place)>& body);

// Claims the group's next unit, the same on every shard. Returns nothing if none is left or the job is asked to stop;
// if stop_wanted() is true, this function requests that stop itself. Collective over the group.
std::optional<std::uint64_t> claim_for_group(ProcessGroup& group, UnitTickets& tickets,
                                             const std::function<bool()>& stop_wanted);

// The same for a group that works on several units at a time. may_hold_more: the group holds fewer units than
// UnitTickets::fair_share(); only the leader's value counts, and with false nothing is claimed. Collective over the
// group.
struct GroupClaim {
  std::optional<std::uint64_t> unit;
  bool none_left = false;  // or the job is asked to stop; false without a unit: the group holds as many as it may
};
GroupClaim claim_another(ProcessGroup& group, UnitTickets& tickets, const std::function<bool()>& stop_wanted,
                         bool may_hold_more);

}  // namespace magister
