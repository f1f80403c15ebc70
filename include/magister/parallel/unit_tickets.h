// UnitTickets: the leaders of all GPU groups claim units from one counter in the memory of world rank 0 (MPI
// one-sided); with groups of several sizes there is one counter per size. A claim is one MPI_Fetch_and_op: 0.2 us on
// two free cores, 17 us if the cores are oversubscribed (measured). If MPI offers no windows, a thread on rank 0
// answers messages instead. It also holds the job's stop request and the counts of finished units. The results do not
// show which group computed a unit.
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

// The groups of a rank among those of their size, for a job with groups of several sizes.
struct GroupsOfSize {
  GroupShares shares;
  int size = 1;
  int first = 0;  // index of the rank's first group
  int count = 1;  // number of such groups in the job
};

class UnitTickets {
 public:
  // `pending`: the units that are still to do, equal on all ranks. kStatic gives group g the entries g, g + num_groups,
  // ... without communication; the groups of one rank (groups_here of them, from group_index on) share their entries.
  // With of_size, only units of that size are claimed, and kStatic counts the groups of that size. Collective over
  // world.
  UnitTickets(const Communicator& world, UnitSet pending, Schedule schedule, int group_index, int num_groups,
              int groups_here = 1, const std::optional<GroupsOfSize>& of_size = {});
  ~UnitTickets();  // local; free() must have been called unless the job is being aborted
  UnitTickets(const UnitTickets&) = delete;
  UnitTickets& operator=(const UnitTickets&) = delete;

  // All functions below except free() may be called from any thread; calls from two threads at once need
  // MPI_THREAD_MULTIPLE.

  // The next unit for this group; std::nullopt if all are claimed or the job was asked to stop. Called by leaders only.
  std::optional<std::uint64_t> claim();
  // Claims up to `most` units, in order, and stops after a unit for which is_last() is true. The number is at most half
  // of this group's equal part of the remaining units (but at least 1), so that all groups end at about the same time.
  // Empty under the conditions of claim().
  std::vector<std::uint64_t> claim_several(std::uint64_t most, const std::function<bool(std::uint64_t unit)>& is_last);
  // Number of units that a group may hold at a time: its equal part, rounded up, of the units that are not computed
  // yet. A group that holds more would leave others without work; a group that holds less may always claim. The number
  // shrinks as units are computed, so a group asks again after each unit that it computes. 0: all are computed.
  std::uint64_t fair_share();
  // Counts one more unit of this rank as computed, committed or not.
  void report_computed();
  // Counts one more unit as committed by a group of this rank (group_here: its index on the rank); adds its tokens to
  // the shared progress.
  void report_done(std::uint64_t num_tokens, int group_here = 0);
  // Adds to the count of written tokens, whether or not their units are committed.
  void report_written(std::uint64_t num_tokens);
  // Shows that this rank makes progress. Calls are cheap: at most 10 per second reach the shared counter. A rank that
  // waits sees heartbeat() change and knows that the others are not stuck.
  void beat();
  std::uint64_t heartbeat();
  // Called when a group of this rank has failed: this rank claims nothing more, and stop_requested() returns true.
  // Local.
  void give_up();
  // From any rank: no rank claims a further unit.
  void request_stop();
  bool stop_requested();

  struct Progress {
    std::uint64_t units_done = 0;
    std::uint64_t tokens_done = 0;
    std::uint64_t tokens_written = 0;
  };
  Progress progress();
  // Tokens of the units that each group has committed in this run, [num_groups]; empty after free(). Costs one message,
  // whatever the number of groups.
  std::vector<std::uint64_t> tokens_by_group();

  // Waits for every rank in a loop that sleeps and calls idle() (so that progress is shown and the watchdog is fed),
  // then frees the window. progress() and stop_requested() keep their last answer. Collective over world.
  void free(const std::function<void()>& idle = {});

 private:
  struct Window;
  std::unique_ptr<Window> window_;
};

}  // namespace magister
