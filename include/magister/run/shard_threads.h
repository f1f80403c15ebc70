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

// A shard's place in its rank.
struct ShardPlace {
  int group = 0;      // of those inside the rank
  bool first = true;  // of its group's shards in the rank
};

// Calls body(process group of the shard, its place) once a shard of this rank, each on a thread of its own (the first on this one) with its
// GPU as the thread's own, and with gradients off. An error on one shard destroys its process group, which releases the others of its
// group; other groups of the rank end as if they were asked to stop; the first error is rethrown. Collective over the group.
void run_shards(const GpuGroup& group, UnitTickets& tickets,
                const std::function<void(std::unique_ptr<ProcessGroup>, ShardPlace place)>& body);

// The group's next unit, the same on every shard; nothing when none is left or the job is asked to stop, which this does
// itself when stop_wanted() says so. Collective over the group.
std::optional<std::uint64_t> claim_for_group(ProcessGroup& group, UnitTickets& tickets,
                                             const std::function<bool()>& stop_wanted);

// Likewise for a group that works on several units at a time. may_hold_more: whether it holds fewer than UnitTickets::fair_share(), as the leader
// says; false claims nothing.
struct GroupClaim {
  std::optional<std::uint64_t> unit;
  bool none_left = false;  // or the job is asked to stop; else the group holds as many as it may
};
GroupClaim claim_beside_others(ProcessGroup& group, UnitTickets& tickets, const std::function<bool()>& stop_wanted,
                               bool may_hold_more);

}  // namespace magister
