// See shard_model.h.
#include "magister/run/shard_model.h"

#include "magister/runtime/device_group.h"

namespace magister {

ShardModel::ShardModel(ShardContext shard)
    : base_(shard.run),
      place_(shard.place),
      is_first_in_rank_(place_.first && place_.group == 0),
      instance_(base_.model, std::move(shard.group), base_.group.threads_per_shard(),
                {[this](const char* phase) { watch(phase); }, base_.stop_wanted}),
      times_(is_first_in_rank_ ? base_.times : own_times_),
      group_(instance_.group()),
      pool_(instance_.pool()),
      model_(load()) {
  if (group_.tp_rank() == 0) writer_.emplace(base_.file, base_.work.tickets, place_.group);
}

Transformer& ShardModel::load() {
  if (base_.model.gpu) {
    const int shard = place_.group * base_.group.tp_size() + group_.tp_rank() - base_.group.first_tp_rank();
    check_device_memory(base_.group, shard, base_.model, base_.memory);
  }
  if (base_.loss && place_.group == 0) return load_and_measure_loss(*base_.loss, instance_, times_);
  const PhaseTimes::Span span(times_, "load");
  return instance_.load();
}

void ShardModel::watch(const char* phase, std::int64_t unit) const {
  if (!place_.first) return;
  base_.work.watchdogs[static_cast<std::size_t>(place_.group)].enter(phase, unit);
  base_.work.tickets.beat();
}

void ShardModel::wait_for_others(const char* phase) const {
  if (!place_.first) return;
  base_.work.watchdogs[static_cast<std::size_t>(place_.group)].wait_for_others(
      phase, -1, [&tickets = base_.work.tickets] { return tickets.heartbeat(); });
}

void ShardModel::wait_for_leader(const char* phase) const {
  if (group_.tp_size() == 1) return;
  if (group_.tp_rank() > 0) wait_for_others(phase);
  group_.broadcast_number(0, 0);
  watch("continue after the leader");
}

std::vector<std::uint64_t> ShardModel::next_units(std::uint64_t tokens) {
  const PhaseTimes::Span span(times_, "claim");
  UnitTickets& tickets = base_.work.tickets;
  const std::uint64_t most = tokens / base_.pass.tokens;
  if (most <= 1 || group_.tp_size() > 1) {
    const std::optional<std::uint64_t> one = claim_for_group(group_, tickets, base_.stop_wanted);
    return one ? std::vector{*one} : std::vector<std::uint64_t>();
  }
  if (base_.stop_wanted()) tickets.request_stop();
  std::uint64_t claimed = 0;
  return tickets.claim_several(most, [&](std::uint64_t unit) {
    claimed += base_.file.unit(unit).rows.size();
    return claimed + base_.pass.tokens > tokens;  // the next unit may be full
  });
}

bool ShardModel::may_hold_more(std::uint64_t held) const {
  const bool may = group_.tp_rank() == 0 && held < base_.work.tickets.fair_share();
  return group_.tp_size() == 1 ? may : group_.broadcast_number(may ? 1 : 0, 0) != 0;
}

void ShardModel::drain() {
  if (group_.device().is_cuda() && group_.tp_size() > 1) times_.add("GPU waits for sums", group_.exposed_seconds());
  if (writer_) {
    watch("write the last unit");
    writer_->drain([this] { watch("write the last unit"); });
    base_.work.report_progress();
    times_.add("write", writer_->write_seconds());
    times_.add("wait for write", writer_->wait_seconds());
  }
  if (place_.first) base_.work.watchdogs[static_cast<std::size_t>(place_.group)].leave();
  group_.close();
}

void run_units_of_one_thread(const ModelRun& run,
                             const std::function<std::vector<ColumnBytes>(const Unit&)>& columns_of) {
  UnitWriter writer(run.file, run.work.tickets);
  while (true) {
    if (run.stop_wanted()) run.work.tickets.request_stop();
    const std::optional<std::uint64_t> index = run.work.tickets.claim();
    if (!index) break;
    run.work.watchdog.enter("compute", static_cast<std::int64_t>(*index));
    run.work.tickets.beat();
    const Unit unit = run.file.unit(*index);
    std::vector<ColumnBytes> columns;
    {
      const PhaseTimes::Span span(run.times, "compute");
      columns = columns_of(unit);
    }
    writer.submit(unit, std::move(columns));
    run.work.report_progress();
  }
  const auto heartbeat = [&run] { run.work.watchdog.enter("write the last unit"); };
  heartbeat();
  writer.drain(heartbeat);
  run.work.report_progress();
  run.times.add("write", writer.write_seconds());
  run.times.add("wait for write", writer.wait_seconds());
  run.work.watchdog.leave();
}

}  // namespace magister
