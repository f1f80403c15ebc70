// Counters on world rank 0: next ticket, units computed, units done, tokens done, tokens written, stop request,
// heartbeat, and the tokens of every group.
#include "magister/parallel/unit_tickets.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "parallel/shared_counters.h"

namespace magister {
namespace {

constexpr int kMostSizes = static_cast<int>(GroupShares::kMostSizes);
// kNextTicket and kUnitsComputed have one counter per group size.
enum Counter : int {
  kNextTicket,
  kUnitsComputed = kMostSizes,
  kUnitsDone = 2 * kMostSizes,
  kTokensDone,
  kTokensWritten,
  kStop,
  kHeartbeat,
  kNumCounters
};

// FNV-1a over the set. If two ranks had different sets, one unit would be computed twice and another one never.
std::uint64_t fingerprint(const UnitSet& units) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : units.to_bytes()) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

struct UnitTickets::Window {
  const Communicator& world;
  UnitSet pending;
  Schedule schedule;
  int group_index, num_groups, groups_here;
  int queue, first_of_queue, groups_of_queue;  // index of the size, and the groups that claim from its counter
  std::atomic<std::uint64_t> num_static{0};    // claims of this rank so far
  std::atomic<std::uint64_t> num_computed{0};  // of this rank's units
  std::atomic<bool> given_up{false};
  std::unique_ptr<SharedCounters> counters;
  // Values of the counters at free().
  Progress last{};
  bool last_stop = false;
  std::atomic<std::int64_t> next_beat{0};  // steady clock, nanoseconds

  std::uint64_t static_ticket() {
    const std::uint64_t n = num_static.fetch_add(1), here = static_cast<std::uint64_t>(groups_here);
    return n / here * static_cast<std::uint64_t>(groups_of_queue) + static_cast<std::uint64_t>(first_of_queue) +
           n % here;
  }

  // Number of units of this rank in a static schedule.
  std::uint64_t units_of_this_rank() const {
    const std::uint64_t groups = static_cast<std::uint64_t>(groups_of_queue),
                        here = static_cast<std::uint64_t>(groups_here),
                        first = static_cast<std::uint64_t>(first_of_queue), last_round = pending.size() % groups;
    return pending.size() / groups * here + std::clamp(last_round, first, first + here) - first;
  }

  std::uint64_t next_ticket() {
    if (schedule == Schedule::kStatic) return static_ticket();
    return fetch_add(static_cast<Counter>(kNextTicket + queue), 1);
  }

  std::uint64_t fetch_add(Counter counter, std::uint64_t add) {
    MAGISTER_CHECK(counters != nullptr, ExitCode::kInternal,
                   "unit tickets used after free() (the window is gone); report this");
    return counters->fetch_add(counter, add);
  }
};

UnitTickets::UnitTickets(const Communicator& world, UnitSet pending, Schedule schedule, int group_index, int num_groups,
                         int groups_here, const std::optional<GroupsOfSize>& of_size) {
  MAGISTER_CHECK(groups_here >= 1 && group_index >= 0 && group_index + groups_here <= num_groups, ExitCode::kInternal,
                 "unit tickets for {} groups from {} on, of {} (there are no such groups); report this", groups_here,
                 group_index, num_groups);
  MAGISTER_CHECK(!of_size || (of_size->first >= 0 && of_size->first + groups_here <= of_size->count &&
                              of_size->count <= num_groups),
                 ExitCode::kInternal,
                 "unit tickets for {} groups from {} on, of {} of one size and {} in all (there are no such groups); "
                 "report this",
                 groups_here, of_size->first, of_size->count, num_groups);
  const std::uint64_t print = fingerprint(pending);
  MAGISTER_CHECK(
      world.min(print) == world.max(print), ExitCode::kInternal,
      "the ranks disagree about which units are left to do (rank {} has {}; one would be done twice); report this",
      world.rank(), pending.size());
  if (of_size) pending = of_size->shares.units_of(of_size->size, pending);
  window_ = std::unique_ptr<Window>(
      new Window{.world = world,
                 .pending = std::move(pending),
                 .schedule = schedule,
                 .group_index = group_index,
                 .num_groups = num_groups,
                 .groups_here = groups_here,
                 .queue = of_size ? static_cast<int>(of_size->shares.part_of(of_size->size)) : 0,
                 .first_of_queue = of_size ? of_size->first : group_index,
                 .groups_of_queue = of_size ? of_size->count : num_groups,
                 .counters = make_shared_counters(world, kNumCounters + num_groups)});
}

UnitTickets::~UnitTickets() = default;

std::optional<std::uint64_t> UnitTickets::claim() {
  const std::vector<std::uint64_t> one = claim_several(1, [](std::uint64_t) { return true; });
  return one.empty() ? std::nullopt : std::optional(one.front());
}

std::vector<std::uint64_t> UnitTickets::claim_several(std::uint64_t most,
                                                      const std::function<bool(std::uint64_t unit)>& is_last) {
  Window& window = *window_;
  std::vector<std::uint64_t> units;
  if (stop_requested()) return units;
  const std::uint64_t count = window.pending.size();
  for (std::uint64_t wanted = 1; units.size() < wanted;) {
    const std::uint64_t ticket = window.next_ticket();
    if (ticket >= count) break;
    if (units.empty())
      wanted = std::clamp((count - ticket) / (2 * static_cast<std::uint64_t>(window.groups_of_queue)), std::uint64_t{1},
                          std::max(most, std::uint64_t{1}));
    units.push_back(window.pending[ticket]);
    if (is_last(units.back())) break;
  }
  return units;
}

std::uint64_t UnitTickets::fair_share() {
  Window& window = *window_;
  const bool shares = window.schedule == Schedule::kDynamic;
  const std::uint64_t all = shares ? window.pending.size() : window.units_of_this_rank(),
                      groups = static_cast<std::uint64_t>(shares ? window.groups_of_queue : window.groups_here),
                      computed = shares ? window.fetch_add(static_cast<Counter>(kUnitsComputed + window.queue), 0)
                                        : window.num_computed.load();
  return (all - std::min(all, computed) + groups - 1) / groups;
}

void UnitTickets::report_computed() {
  Window& window = *window_;
  ++window.num_computed;
  if (window.schedule == Schedule::kDynamic) window.fetch_add(static_cast<Counter>(kUnitsComputed + window.queue), 1);
}

void UnitTickets::report_done(std::uint64_t num_tokens, int group_here) {
  window_->fetch_add(static_cast<Counter>(kNumCounters + window_->group_index + group_here), num_tokens);
  window_->fetch_add(kTokensDone, num_tokens);
  window_->fetch_add(kUnitsDone, 1);
}

void UnitTickets::report_written(std::uint64_t num_tokens) { window_->fetch_add(kTokensWritten, num_tokens); }

void UnitTickets::beat() {
  constexpr std::int64_t kPause = 100'000'000;
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t next = window_->next_beat.load(std::memory_order_relaxed);
  if (now < next || !window_->next_beat.compare_exchange_strong(next, now + kPause) || !window_->counters) return;
  window_->fetch_add(kHeartbeat, 1);
}

std::uint64_t UnitTickets::heartbeat() { return window_->counters ? window_->fetch_add(kHeartbeat, 0) : 0; }

void UnitTickets::give_up() { window_->given_up = true; }

void UnitTickets::request_stop() { window_->fetch_add(kStop, 1); }

bool UnitTickets::stop_requested() {
  if (window_->given_up) return true;
  return window_->counters ? window_->fetch_add(kStop, 0) != 0 : window_->last_stop;
}

UnitTickets::Progress UnitTickets::progress() {
  if (!window_->counters) return window_->last;
  const std::uint64_t units = window_->fetch_add(kUnitsDone, 0), tokens = window_->fetch_add(kTokensDone, 0);
  return {units, tokens, window_->fetch_add(kTokensWritten, 0)};
}

std::vector<std::uint64_t> UnitTickets::tokens_by_group() {
  if (!window_->counters) return {};
  return window_->counters->read(kNumCounters, window_->num_groups);
}

void UnitTickets::free(const std::function<void()>& idle) {
  if (!window_->counters) return;
  window_->world.wait_for_all(idle);
  window_->last = progress();
  window_->last_stop = stop_requested();
  window_->world.wait_for_all(idle);  // no rank frees while another still reads
  window_->counters->free();
  window_->counters.reset();
}

}  // namespace magister
