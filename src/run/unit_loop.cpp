// The loop around a task's units; see unit_loop.h.
#include "magister/run/unit_loop.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "magister/core/log.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/run/run_log.h"

namespace magister {
namespace {

constexpr const char* kWaiting = "waiting for the other ranks";

// One for each group of this rank: while one of them works another may be stuck.
void make_watchdogs(std::deque<Watchdog>& watchdogs, const RunContext& context, int groups_here) {
  const double seconds = context.experiment.run.watchdog_seconds;
  const std::chrono::milliseconds deadline(static_cast<std::int64_t>((seconds > 0 ? seconds : 1e8) * 1000));
  for (int i = 0; i < groups_here; ++i) watchdogs.emplace_back(deadline, i == 0 && context.world.rank() == 0);
}

// Waits until every rank has ended its work. As long as one of them shows a sign of life nobody is stuck, however long its unit
// takes; and a stop that only this rank was told of reaches the others.
void wait_for_the_others(UnitLoop& loop, UnitTickets& tickets, Watchdog& watchdog, const std::function<void()>& tell) {
  constexpr std::chrono::milliseconds kPause{100};
  const PhaseTimes::Span span(loop.times, "wait for other ranks");
  watchdog.enter(kWaiting);
  std::uint64_t seen = 0;
  auto next_look = std::chrono::steady_clock::now();
  loop.context.world.wait_for_all([&] {
    tell();
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look) return;
    next_look = now + kPause;
    if (loop.context.stop.raised()) tickets.request_stop();
    if (const std::uint64_t beats = tickets.heartbeat(); beats != std::exchange(seen, beats)) watchdog.enter(kWaiting);
  });
}

// Once the groups have committed two units each on average; before that most would have none.
std::optional<SlowestRank> slowest_rank(UnitTickets& tickets, std::uint64_t units_done,
                                        const std::vector<std::uint64_t>& leaders) {
  if (leaders.size() < 2 || units_done < 2 * leaders.size()) return std::nullopt;
  const std::vector<std::uint64_t> tokens = tickets.tokens_by_group();
  const auto least = std::min_element(tokens.begin(), tokens.end());
  if (least == tokens.end()) return std::nullopt;
  return SlowestRank{static_cast<int>(leaders[static_cast<std::size_t>(least - tokens.begin())]), *least};
}

// World ranks of the groups' leaders, by group. Collective over world.
std::vector<std::uint64_t> leaders_of(const Communicator& world, const GpuGroup& group) {
  constexpr auto kNone = static_cast<std::uint64_t>(-1);
  const std::vector<std::uint64_t> groups =
      world.all_gather(group.is_leader() ? static_cast<std::uint64_t>(group.group_index()) : kNone);
  const std::vector<std::uint64_t> counts = world.all_gather(static_cast<std::uint64_t>(group.groups_here()));
  std::vector<std::uint64_t> leaders(static_cast<std::size_t>(group.num_groups()));
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    if (groups[rank] == kNone) continue;
    for (std::uint64_t i = 0; i < counts[rank]; ++i) leaders.at(groups[rank] + i) = rank;
  }
  return leaders;
}

}  // namespace

ExitCode run_unit_loop(UnitLoop loop, const std::function<void(const UnitWork&)>& work) {
  const auto begin = std::chrono::steady_clock::now();
  RunContext& context = loop.context;
  const std::uint64_t num_pending = loop.file.pending_units().size();
  const bool speaks = context.world.rank() == 0;
  const std::uint64_t tokens_left = speaks ? loop.file.pending_rows() : 0;
  nlohmann::ordered_json fields = {{"task", loop.task},
                                   {"ranks", context.world.size()},
                                   {"groups", loop.group.num_groups()},
                                   {"tp_size", loop.group.tp_size()},
                                   {"units", loop.file.num_units()},
                                   {"pending_units", num_pending},
                                   {"cpu", cpu_features()}};
  fields.update(loop.fields);
  context.log.event("start", fields);
  std::deque<Watchdog> watchdogs;
  make_watchdogs(watchdogs, context, loop.group.groups_here());
  Watchdog& watchdog = watchdogs.front();
  UnitTickets tickets(context.world, loop.file.pending_units(), context.experiment.run.schedule,
                      loop.group.group_index(), loop.group.num_groups(), loop.group.groups_here());
  Progress progress(loop.task, {num_pending, tokens_left}, {}, context.log, speaks, stderr_is_terminal());
  const std::vector<std::uint64_t> leaders = leaders_of(context.world, loop.group);
  InFlight in_flight;
  std::mutex telling, one_group;
  const std::function<void()> tell = [&] {
    if (!speaks) return;
    const std::unique_lock lock(telling, std::try_to_lock);
    if (!lock || !progress.is_due()) return;
    const UnitTickets::Progress done = tickets.progress();
    progress.update({done.units_done, done.tokens_done}, in_flight, slowest_rank(tickets, done.units_done, leaders));
  };
  const std::function<void(const InFlight&)> tell_in_flight = [&](const InFlight& now) {
    {
      const std::lock_guard lock(telling);
      in_flight = now;
      in_flight.groups = static_cast<std::uint64_t>(loop.group.num_groups());
    }
    tell();
  };
  try {
    work({tickets, watchdog, tell, tell_in_flight, watchdogs, one_group});
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStopped) throw;
    tickets.request_stop();
  }
  for (Watchdog& one : watchdogs) one.leave();
  wait_for_the_others(loop, tickets, watchdog, tell);
  const UnitTickets::Progress done = tickets.progress();
  Computed computed{done.tokens_done, 0, leaders, speaks ? tickets.tokens_by_group() : std::vector<std::uint64_t>()};
  tickets.free();
  watchdog.leave();
  progress.end();
  const bool finished = context.world.min(done.units_done) == num_pending;
  if (finished) loop.file.reopen();  // rows of other hosts are read next: a summary, the packing of texts
  computed.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report_phases(context.world, loop.times, loop.task, computed, context.log);
  if (finished) return ExitCode::kDone;
  log_info("{}: stopped cleanly, {} of {} units to do; run the same command again", loop.task,
           num_pending - done.units_done, loop.file.num_units());
  return ExitCode::kStopped;
}

}  // namespace magister
