// See unit_loop.h.
#include "magister/run/unit_loop.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "magister/core/log.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/parallel/exchange.h"
#include "magister/run/device_lines.h"
#include "magister/run/peak_memory.h"
#include "magister/run/run_log.h"
#include "magister/run/usage.h"

namespace magister {
namespace {

constexpr const char* kWaiting = "waiting for the other ranks";

// One watchdog for each group of this rank: while one group works, another may be stuck.
void make_watchdogs(std::deque<Watchdog>& watchdogs, const RunContext& context, int groups_here) {
  const double seconds = context.experiment.run.watchdog_seconds;
  const std::chrono::milliseconds deadline(static_cast<std::int64_t>((seconds > 0 ? seconds : 1e8) * 1000));
  for (int i = 0; i < groups_here; ++i) watchdogs.emplace_back(deadline, i == 0 && context.world.rank() == 0);
}

// Waits until every rank has ended its work. No rank counts as stuck while any rank reports progress, however long its
// unit takes. A stop request that only this rank received reaches the others.
void wait_for_the_others(UnitLoop& loop, UnitTickets& tickets, Watchdog& watchdog,
                         const std::function<void()>& report_progress) {
  constexpr std::chrono::milliseconds kPause{100};
  const PhaseTimes::Span span(loop.times, "wait for other ranks");
  watchdog.enter(kWaiting);
  std::uint64_t seen = 0;
  auto next_look = std::chrono::steady_clock::now();
  loop.context.world.wait_for_all([&] {
    report_progress();
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look) return;
    next_look = now + kPause;
    if (loop.context.stop.raised()) tickets.request_stop();
    if (const std::uint64_t beats = tickets.heartbeat(); beats != std::exchange(seen, beats)) watchdog.enter(kWaiting);
  });
}

// The number of devices of each group.
std::vector<int> sizes_of(const GpuGroup& group) {
  std::vector<int> sizes(static_cast<std::size_t>(group.num_groups()), 1);
  for (const DeviceRow& row : group.table()) sizes[static_cast<std::size_t>(row.group_index)] = row.group_size;
  return sizes;
}

// SlowestRank::longer, estimated as if the units of a size held its share of all tokens. tokens: by index of the size
// in shares.parts().
double times_longer(const GroupShares& shares, const std::vector<std::uint64_t>& tokens, std::uint64_t tokens_to_do) {
  double all_shares = 0, done = 0, longest = 0, left = 0;
  for (const auto& part : shares.parts()) all_shares += part.share;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto own = static_cast<double>(tokens[i]);
    const double own_left =
        std::max(static_cast<double>(tokens_to_do) * shares.parts()[i].share / all_shares - own, 0.0);
    if (own == 0 && own_left > 0) return 1;  // not known yet
    longest = std::max(longest, own > 0 ? own_left / own : 0);
    left += own_left;
    done += own;
  }
  return left > 0 && done > 0 ? std::max(longest * done / left, 1.0) : 1;
}

// The group with the fewest tokens per device, once the groups have committed two units each on average; before that,
// most would have none.
std::optional<SlowestRank> slowest_rank(UnitTickets& tickets, std::uint64_t units_done, std::uint64_t tokens_to_do,
                                        const std::vector<std::uint64_t>& leaders, const std::vector<int>& sizes,
                                        const GroupShares& shares) {
  if (leaders.size() < 2 || units_done < 2 * leaders.size()) return std::nullopt;
  const std::vector<std::uint64_t> tokens = tickets.tokens_by_group();
  if (tokens.empty()) return std::nullopt;
  std::size_t least = 0;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i] * static_cast<std::uint64_t>(sizes[least]) < tokens[least] * static_cast<std::uint64_t>(sizes[i]))
      least = i;
  }
  std::vector<std::uint64_t> by_part(shares.parts().size(), 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) by_part[shares.part_of(sizes[i])] += tokens[i];
  return SlowestRank{static_cast<int>(leaders[least]), tokens[least], times_longer(shares, by_part, tokens_to_do)};
}

// The world ranks of the groups' leaders, by group. Collective over world.
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

// Nothing if all groups have the same size.
std::optional<GroupsOfSize> groups_of_size(const GpuGroup& group) {
  if (!group.shares().mixed()) return std::nullopt;
  return GroupsOfSize{group.shares(), group.tp_size(), group.first_of_size(), group.groups_of_size()};
}

// Fields of the event "start".
nlohmann::ordered_json size_fields(const GpuGroup& group) {
  if (!group.shares().mixed()) return {{"tp_size", group.tp_size()}};
  nlohmann::ordered_json sizes;
  for (const auto& part : group.shares().parts()) {
    sizes["tp_sizes"].push_back(part.size);
    sizes["tp_shares"].push_back(part.share);
  }
  return sizes;
}

// Reports how fast the groups of each size were, so that the user can set shares with which they end together. seconds:
// until this rank had nothing left to do. Collective over the world.
void report_sizes(const UnitLoop& loop, const Computed& computed, double seconds, const std::vector<int>& sizes) {
  const GroupShares& shares = loop.group.shares();
  const auto micros = static_cast<std::uint64_t>(seconds * 1e6);
  nlohmann::ordered_json event = {{"task", loop.task}, {"sizes", nlohmann::ordered_json::array()}};
  std::vector<std::string> words;
  for (const auto& part : shares.parts()) {
    const double longest =
        1e-6 * static_cast<double>(loop.context.world.max(part.size == loop.group.tp_size() ? micros : 0));
    if (computed.tokens_by_group.empty()) continue;  // only rank 0 reports
    std::uint64_t tokens = 0;
    int groups = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != part.size) continue;
      tokens += computed.tokens_by_group[i];
      ++groups;
    }
    event["sizes"].push_back({{"size", part.size},
                              {"share", part.share},
                              {"groups", groups},
                              {"tokens", tokens},
                              {"seconds", longest},
                              {"tokens_per_second", longest > 0 ? static_cast<double>(tokens) / longest : 0}});
    words.push_back(fmt::format("{} of {}: {} tokens in {:.1f} s", groups, part.size, tokens, longest));
  }
  if (words.empty()) return;
  log_info("{}: groups {} (with shares in proportion to these speeds they would end together)", loop.task,
           fmt::join(words, "; "));
  loop.context.log.event("sizes", event);
}

// Explains why groups were idle: a unit is computed by one group. by_group: filled on rank 0.
void report_idle_groups(const UnitLoop& loop, const std::vector<std::uint64_t>& by_group, std::uint64_t num_pending) {
  const auto idle = static_cast<std::size_t>(std::count(by_group.begin(), by_group.end(), 0));
  if (idle == 0 || idle == by_group.size()) return;
  log_info("{}: {} of {} groups computed nothing: there {} for all of them; {}", loop.task, idle, by_group.size(),
           num_pending == 1 ? "was 1 unit" : fmt::format("were {} units", num_pending),
           num_pending < by_group.size()
               ? "fewer ranks are enough for so few records"
               : "the other groups had already taken them (run.schedule: static gives each a part)");
}

std::uint64_t job_rank_of(const RunContext& context) {
  return static_cast<std::uint64_t>(context.part ? context.part->rank : context.world.rank());
}

// Logs the devices of this rank to its own log. Returns those that are GPUs.
std::vector<GpuDevice> own_gpus(const UnitLoop& loop) {
  std::vector<GpuDevice> gpus;
  for (const DeviceRow& row : loop.group.table()) {
    if (row.world_rank != loop.context.world.rank()) continue;
    const std::string place = row.gpu && !row.gpu->pci.empty() ? ", PCI " + row.gpu->pci : "";
    log_local(LogLevel::kInfo, "{}: group {}, shard {} of {}: {}{}", loop.task, row.group_index, row.tp_rank,
              row.group_size, row.device, place);
    if (row.gpu) gpus.push_back(*row.gpu);
  }
  return gpus;
}

// Reports the peak memory of the ranks. Collective over world.
void report_memory(const UnitLoop& loop, const std::vector<GpuDevice>& gpus) {
  const RunContext& context = loop.context;
  const nlohmann::ordered_json peaks = gathered_peaks(context.world, job_rank_of(context), peak_memory(gpus));
  log_info("{}: at most {}", loop.task, describe_peaks(peaks));
  log_local(LogLevel::kInfo, "{}: here at most {}", loop.task,
            describe_peaks(nlohmann::ordered_json::array({peaks.at(static_cast<std::size_t>(context.world.rank()))})));
  context.log.event("memory", {{"task", loop.task}, {"peak_memory", peaks}});
}

// Reports what the ranks and GPUs did in the task. tokens: read and written by all ranks. Collective over world.
void report_usage(const UnitLoop& loop, const Monitor::Watch& watch, std::uint64_t tokens) {
  const RunContext& context = loop.context;
  if (context.monitor == nullptr) return;
  nlohmann::ordered_json usage = {{"task", loop.task}};
  usage.update(gathered_usage(context.world, job_rank_of(context), watch));
  add_energy_of_tokens(usage, tokens);
  if (const std::string words = describe_usage(usage); !words.empty()) log_info("{}: {}", loop.task, words);
  context.log.event("usage", usage);
}

// The tokens of each leader's groups, by its rank in the job. job_ranks: of the ranks of the world.
std::vector<std::pair<std::uint64_t, std::uint64_t>> tokens_by_leader(UnitTickets& tickets,
                                                                      const std::vector<std::uint64_t>& leaders,
                                                                      const std::vector<std::uint64_t>& job_ranks) {
  std::map<std::uint64_t, std::uint64_t> by_rank;
  const std::vector<std::uint64_t> by_group = tickets.tokens_by_group();
  for (std::size_t i = 0; i < by_group.size(); ++i) by_rank[job_ranks[leaders[i]]] += by_group[i];
  return {by_rank.begin(), by_rank.end()};
}

}  // namespace

void UnitWork::live_together(const std::string& phase, std::int64_t number) const {
  watchdog.wait_for_others(phase, number, [&tickets = tickets] { return tickets.heartbeat(); });
  if (threads_may_exchange()) tickets.beat();
}

ExitCode run_unit_loop(UnitLoop loop, const std::function<void(const UnitWork&)>& work) {
  const auto begin = std::chrono::steady_clock::now();
  RunContext& context = loop.context;
  const std::uint64_t num_pending = loop.file.pending_units().size();
  const bool is_root = context.world.rank() == 0;
  const std::uint64_t tokens_left = is_root ? loop.file.pending_rows() : 0;
  nlohmann::ordered_json fields = {
      {"task", loop.task}, {"ranks", context.world.size()}, {"groups", loop.group.num_groups()}};
  fields.update(size_fields(loop.group));
  fields.update({{"units", loop.file.num_units()}, {"pending_units", num_pending}, {"cpu", cpu_features()}});
  fields.update(loop.fields);
  const std::vector<std::uint64_t> job_ranks = context.world.all_gather(job_rank_of(context));
  fields["devices"] = device_rows(loop.group.table(), job_ranks);
  context.log.event("start", fields);
  begin_peak_memory();
  const std::vector<GpuDevice> gpus = own_gpus(loop);
  UnitTickets tickets(context.world, loop.file.pending_units(), context.experiment.run.schedule,
                      loop.group.group_index(), loop.group.num_groups(), loop.group.groups_here(),
                      groups_of_size(loop.group));
  std::deque<Watchdog> watchdogs;  // destroyed before the tickets, because they call them
  make_watchdogs(watchdogs, context, loop.group.groups_here());
  Watchdog& watchdog = watchdogs.front();
  const Monitor::Watch watch(context.monitor, loop.task, [&watchdog] { return watchdog.where(); });
  std::vector<std::unique_ptr<ProgressReader>> readers;
  if (is_root) readers = default_progress_readers(context.log, stderr_is_terminal());
  const std::vector<std::uint64_t> leaders = leaders_of(context.world, loop.group);
  if (is_root && context.monitor != nullptr && loop.groups_divide_units) {
    readers.push_back(
        monitor_progress_reader(*context.monitor, [&] { return tokens_by_leader(tickets, leaders, job_ranks); }));
  }
  Progress progress(loop.task, {num_pending, tokens_left}, {}, std::move(readers));
  const std::vector<int> sizes = sizes_of(loop.group);
  InFlight in_flight;
  StepsDone steps;
  std::mutex reporting, one_group;
  const std::function<void()> report_progress = [&] {
    if (!is_root) return;
    const std::unique_lock lock(reporting, std::try_to_lock);
    if (!lock || !progress.is_due()) return;
    const UnitTickets::Progress done = tickets.progress();
    progress.update({done.units_done, done.tokens_done, done.tokens_written}, in_flight,
                    slowest_rank(tickets, done.units_done, tokens_left, leaders, sizes, loop.group.shares()));
  };
  const std::function<void(const InFlight&)> report_in_flight = [&](const InFlight& now) {
    {
      const std::lock_guard lock(reporting);
      in_flight = now;
      in_flight.groups = static_cast<std::uint64_t>(loop.group.num_groups());
    }
    report_progress();
  };
  try {
    work({tickets, watchdog, report_progress, report_in_flight, watchdogs, one_group, steps});
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStopped) throw;
    tickets.request_stop();
  }
  const double own_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (Watchdog& one : watchdogs) one.leave();
  wait_for_the_others(loop, tickets, watchdog, report_progress);
  const UnitTickets::Progress done = tickets.progress();
  Computed computed{done.tokens_done, done.tokens_written, 0, leaders,
                    is_root ? tickets.tokens_by_group() : std::vector<std::uint64_t>()};
  tickets.free();
  watchdog.leave();
  progress.end();
  const bool finished = context.world.min(done.units_done) == num_pending;
  if (finished) loop.file.reopen();  // a summary or packing reads rows of other hosts next
  computed.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!loop.groups_divide_units) {
    computed.tokens = steps.tokens;
    computed.tokens_by_group.clear();
  }
  report_phases(context.world, loop.times, loop.task, computed, context.log);
  report_idle_groups(loop, computed.tokens_by_group, num_pending);
  if (loop.group.shares().mixed()) report_sizes(loop, computed, own_seconds, sizes);
  report_memory(loop, gpus);
  report_usage(loop, watch, computed.tokens + computed.written);
  if (finished) return ExitCode::kDone;
  const bool in_steps = steps.all > 0;
  log_info("{}: stopped cleanly, {} of {} {} to do; run the same command again", loop.task,
           in_steps ? steps.all - steps.done : num_pending - done.units_done,
           in_steps ? steps.all : loop.file.num_units(), in_steps ? "steps" : "units");
  return ExitCode::kStopped;
}

}  // namespace magister
