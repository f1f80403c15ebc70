// UnitTickets: the leaders of all GPU groups claim units from one counter in the memory of world rank 0 (MPI one-sided), or where groups have
// several sizes from one for each size.
// A claim is one MPI_Fetch_and_op: 0.2 us on two free cores, 17 us oversubscribed (measured); where MPI has no windows a
// thread on rank 0 answers messages instead. Also the job's shared stop sign and its count of finished units. Which
// group computed a unit never shows in the results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "magister/core/unit_set.h"
#include "magister/parallel/group_shares.h"

namespace magister {

class Communicator;

enum class Schedule { kDynamic, kStatic };

// Of a rank's groups among those of their size, in a job whose groups have several sizes.
struct GroupsOfSize {
  GroupShares shares;
  int size = 1;
  int first = 0;  // of the rank's first group
  int count = 1;  // in the job
};

class UnitTickets {
 public:
  // Collective over world. `pending`: the units still to do, equal on all ranks.
  // kStatic gives group g the entries g, g + num_groups, ... and needs no communication; groups of one rank (groups_here, from group_index
  // on) share theirs. of_size: only the units of that size are claimed here, and kStatic counts the groups of that size.
  UnitTickets(const Communicator& world, UnitSet pending, Schedule schedule, int group_index, int num_groups,
              int groups_here = 1, const std::optional<GroupsOfSize>& of_size = {});
  ~UnitTickets();  // local; free() must have been called unless the job is being aborted
  UnitTickets(const UnitTickets&) = delete;
  UnitTickets& operator=(const UnitTickets&) = delete;

  // All below but free(): from any thread; needs MPI_THREAD_MULTIPLE when two threads of a rank call at once.

  // The next unit for this group, or nothing when all are claimed or the job was asked to stop. Called by leaders only.
  std::optional<std::uint64_t> claim();
  // Up to `most` of them at once, in the order of the units, and no more behind one of which is_last() is true. But for the first no more than half of
  // this group's equal part of what is left, so that groups end together. Empty as claim().
  std::vector<std::uint64_t> claim_several(std::uint64_t most, const std::function<bool(std::uint64_t unit)>& is_last);
  // How many units a group may hold at a time: its equal part, rounded up, of those that no group has computed yet. Who holds more would leave
  // others without work; who holds less may always claim. It becomes smaller as units are computed, so who has asked asks again when one of
  // its own units is. 0: all are computed.
  std::uint64_t fair_share();
  // One more unit of this rank is computed, whether or not it is committed yet.
  void report_computed();
  // One more unit is committed, by this group of those of the rank; adds its tokens to the shared progress.
  void report_done(std::uint64_t num_tokens, int group_here = 0);
  // So many more tokens of texts are written, whether or not their units are committed yet.
  void report_written(std::uint64_t num_tokens);
  // This rank still makes progress; cheap, so often called: at most 10 times a second it reaches the others. A rank that waits for
  // them sees heartbeat() move and knows that nobody is stuck.
  void beat();
  std::uint64_t heartbeat();
  // One of this rank's groups has failed: on this rank nothing more is claimed, and stop_requested() says so. Local.
  void give_up();
  // From any rank: no further unit is claimed by anyone.
  void request_stop();
  bool stop_requested();

  struct Progress {
    std::uint64_t units_done = 0;
    std::uint64_t tokens_done = 0;
    std::uint64_t tokens_written = 0;
  };
  Progress progress();
  // Tokens of the units that each group has committed in this run, [num_groups]; empty after free(). One message, whatever their number.
  std::vector<std::uint64_t> tokens_by_group();

  // Collective over world: waits for every rank in a loop that sleeps and calls idle() (so that progress and a watchdog
  // stay alive), then frees the window. progress() and stop_requested() keep their last answer.
  void free(const std::function<void()>& idle = {});

 private:
  struct Window;
  std::unique_ptr<Window> window_;
};

}  // namespace magister
