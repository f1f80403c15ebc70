// The order of loading: the model without quantisation first, where its loss is measured, so that both never stand in memory.
#include "magister/run/shard_model.h"

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/run/device_group.h"

namespace magister {

ShardModel::ShardModel(const ModelRun& run, std::unique_ptr<ProcessGroup> group, bool first)
    : base_(run),
      group_(std::move(group)),
      speaks_(first),
      times_(first ? run.times : own_times_),
      pool_(run.group.threads_per_shard()) {
  const OpenModel& source = base_.model;
  if (source.gpu) {
    check_device_memory(base_.group, source.device_memory(group_->tp_size(), base_.pass,
                                                          static_cast<std::uint64_t>(base_.cache_pages)));
  }
  std::optional<QuantizationLoss> loss;
  if (base_.loss) {
    const PhaseTimes::Span measuring(times_, "measure the loss");
    const auto plain = [&](const LoadHook& hook) { return source.load_unquantized(*group_, pool_, hook); };
    loss.emplace(*base_.loss, load_together("load the model without quantisation", plain), *group_, pool_, [this] {
      watch("measure the loss of quantisation");
      if (stop_agreed()) throw Error(ExitCode::kStopped, "stopped");
    });
  }
  {
    const PhaseTimes::Span span(times_, "load");
    model_.emplace(
        load_together("load the model", [&](const LoadHook& hook) { return source.load(*group_, pool_, hook); }));
    model_->self_test();
  }
  if (loss) {
    const PhaseTimes::Span measuring(times_, "measure the loss");
    loss->compare(*model_);
  }
  if (group_->tp_rank() == 0) writer_.emplace(base_.file, base_.work.tickets);
}

void ShardModel::watch(const char* phase, std::int64_t unit) const {
  if (!speaks_) return;
  base_.work.watchdog.enter(phase, unit);
  base_.work.tickets.beat();
}

bool ShardModel::stop_agreed() const {
  const bool here = base_.stop_wanted();
  return group_->tp_size() == 1 ? here : group_->broadcast_number(here, 0) != 0;
}

Transformer ShardModel::load_together(const char* phase,
                                      const std::function<Transformer(const LoadHook&)>& load) const {
  watch(phase);
  std::optional<Transformer> model;
  try {
    model.emplace(load([&] {
      watch(phase);
      fail_point("model.load.tensor");
      if (base_.stop_wanted()) throw Error(ExitCode::kStopped, "stopped");
    }));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStopped) throw;
  }
  at::Tensor stopped = at::full({1}, model ? 0 : 1, at::TensorOptions().dtype(at::kInt).device(group_->device()));
  if (group_->tp_size() > 1) group_->all_reduce_sum(stopped);
  if (stopped.item<int>() > 0) throw Error(ExitCode::kStopped, "stopped");
  return std::move(*model);
}

void ShardModel::drain() {
  if (group_->device().is_cuda() && group_->tp_size() > 1) times_.add("GPU waits for sums", group_->exposed_seconds());
  if (writer_) {
    watch("write the last unit");
    writer_->drain();
    base_.work.tell();
    times_.add("write", writer_->write_seconds());
    times_.add("wait for write", writer_->wait_seconds());
  }
  if (speaks_) base_.work.watchdog.leave();
}

}  // namespace magister
