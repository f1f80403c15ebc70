// The order of loading: the model without quantisation first, where its loss is measured, so that both never stand in memory.
#include "magister/run/shard_model.h"

#include "magister/run/device_group.h"

namespace magister {

ShardModel::ShardModel(const ModelRun& run, std::unique_ptr<ProcessGroup> group, bool first)
    : base_(run), group_(std::move(group)), speaks_(first), times_(first ? run.times : own_times_), pool_(run.group.threads_per_shard()) {
  const OpenModel& source = base_.model;
  if (source.gpu) {
    check_device_memory(base_.group, source.device_memory(group_->tp_size(), base_.pass, static_cast<std::uint64_t>(base_.cache_pages)));
  }
  std::optional<QuantizationLoss> loss;
  if (base_.loss) {
    const PhaseTimes::Span measuring(times_, "measure the loss");
    watch("measure the loss of quantisation");
    loss.emplace(*base_.loss, source, *group_, pool_);
  }
  {
    const PhaseTimes::Span span(times_, "load");
    watch("load the model");
    model_.emplace(source.load(*group_, pool_));
    model_->self_test();
  }
  if (loss) {
    const PhaseTimes::Span measuring(times_, "measure the loss");
    loss->compare(*model_);
  }
  if (group_->tp_rank() == 0) writer_.emplace(base_.file, base_.work.tickets);
}

void ShardModel::watch(const char* phase, std::int64_t unit) const {
  if (speaks_) base_.work.watchdog.enter(phase, unit);
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
