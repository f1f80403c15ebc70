// Loading is one step of the whole group: it ends on every shard or on none.
#include "magister/runtime/model_instance.h"

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"

namespace magister {

ModelInstance::ModelInstance(const OpenModel& source, std::unique_ptr<ProcessGroup> group, int num_threads, Hooks hooks)
    : source_(source), group_(std::move(group)), hooks_(std::move(hooks)), pool_(num_threads) {}

Transformer& ModelInstance::load(bool self_test) {
  model_.emplace(
      load_together("load the model", [this](const LoadHook& hook) { return source_.load(*group_, pool_, hook); }));
  if (self_test) model_->self_test();
  return *model_;
}

Transformer ModelInstance::load_unquantized() {
  return load_together("load the model without quantisation",
                       [this](const LoadHook& hook) { return source_.load_unquantized(*group_, pool_, hook); });
}

bool ModelInstance::stop_agreed() const {
  const bool here = hooks_.stop_wanted();
  return group_->tp_size() == 1 ? here : group_->broadcast_number(here, 0) != 0;
}

Transformer ModelInstance::load_together(const char* phase,
                                         const std::function<Transformer(const LoadHook&)>& load) const {
  hooks_.heartbeat(phase);
  std::optional<Transformer> model;
  try {
    model.emplace(load([&] {
      hooks_.heartbeat(phase);
      fail_point("model.load.tensor");
      if (hooks_.stop_wanted()) throw Error(ExitCode::kStopped, "stopped");
    }));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStopped) throw;
  }
  if (group_->least_number(model ? 1 : 0) == 0) throw Error(ExitCode::kStopped, "stopped");
  return std::move(*model);
}

}  // namespace magister
