// See state_writer.h. No message of MPI comes from the thread that writes: what other ranks hold is gathered before.
#include "magister/train/state_writer.h"

#include <ATen/ATen.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/checkpoint/safetensors_writer.h"
#include "magister/io/whole_file.h"
#include "train/state_parts.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

// Copies from a GPU to the host; empty: plain copies.
CopyNumbers to_host(Trainer& trainer) {
  if (!trainer.trains_on_gpu()) return {};
  return [&trainer](const at::Tensor& from, const at::Tensor& to) { trainer.copies().to_host(from, to); };
}

void copy_whole(Trainer& trainer, const at::Tensor& from, at::Tensor& to) {
  if (!to.defined()) to = at::empty(from.sizes(), at::kFloat);
  if (const CopyNumbers copy = to_host(trainer)) return copy(from, to);
  to.copy_(from);
}

// Removes what a killed run left of a state that it was writing: three times the weights. The caller holds the lock.
void remove_half_made(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors.creating")) fs::remove(entry.path(), error);
  }
}

}  // namespace

// The content of a state. The tensors refer to the curves.
struct StateWriter::State {
  std::unique_ptr<TrainingCurves> curves;
  std::uint64_t updates = 0;
  std::vector<NamedTensor> tensors;
};

StateWriter::~StateWriter() {
  try {
    wait();
  } catch (const std::exception& error) {  // another error ends the job
    log_warning("{}", error.what());
  }
}

// Every rank gives its moments to the first one, which takes them in turn.
void StateWriter::copy_numbers() {
  const FlatShards& shards = trainer_.shards();
  const bool is_first = trainer_.world().rank() == 0;
  if (is_first) copy_whole(trainer_, trainer_.weights(), weights_);
  const OptimizerState& state = trainer_.optimizer();
  for (const auto& [part, copy] : {std::pair{&state.mean, &mean_}, {&state.square, &square_}}) {
    if (trainer_.sharing().size() == 1) {
      if (is_first) copy_whole(trainer_, *part, *copy);
      continue;
    }
    if (is_first && !copy->defined()) *copy = at::empty({shards.flat_size()}, at::kFloat);
    for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
      const FlatRange range = shards.bucket_range(bucket);
      range_on_first(trainer_.sharing(), shards, *part, range, to_host(trainer_),
                     is_first ? copy->narrow(0, range.begin, range.size()) : at::Tensor());
    }
  }
}

std::vector<NamedTensor> StateWriter::tensors_of_copy() const {
  std::vector<NamedTensor> tensors;
  const FlatLayout& layout = trainer_.trained();
  add_parameters(tensors, "model.", layout, weights_);
  add_parameters(tensors, "exp_avg.", layout, mean_);
  add_parameters(tensors, "exp_avg_sq.", layout, square_);
  return tensors;
}

// Moments of a divided optimizer arrive as they are read, on all ranks at once.
std::vector<NamedTensor> StateWriter::tensors_of_trainer() const {
  std::vector<NamedTensor> tensors;
  const FlatLayout& layout = trainer_.trained();
  Trainer& trainer = trainer_;
  if (!trainer.trains_on_gpu()) {
    add_parameters(tensors, "model.", layout, trainer.weights());
  } else if (trainer.world().rank() == 0) {
    add_one_by_one(tensors, "model.", layout, [&trainer](const NamedTensor& tensor, const FlatRange& range) {
      at::Tensor whole = at::empty(tensor.shape, at::kFloat);
      trainer.copies().to_host(trainer.weights().narrow(0, range.begin, range.size()), whole);
      return whole;
    });
  }
  const auto moment = [&trainer](at::Tensor OptimizerState::* of) {
    return [&trainer, of](const NamedTensor& tensor, const FlatRange& range) {
      const at::Tensor whole =
          range_on_first(trainer.sharing(), trainer.shards(), trainer.optimizer().*of, range, to_host(trainer));
      return whole.defined() ? whole.view(tensor.shape) : whole;
    };
  };
  add_one_by_one(tensors, "exp_avg.", layout, moment(&OptimizerState::mean));
  add_one_by_one(tensors, "exp_avg_sq.", layout, moment(&OptimizerState::square));
  return tensors;
}

void StateWriter::save(const TrainingCurves& curves) {
  wait();
  State state{std::make_unique<TrainingCurves>(curves), trainer_.optimizer().updates, {}};
  const bool is_first = trainer_.world().rank() == 0;
  if (copies_) {
    copy_numbers();
    if (is_first) state.tensors = tensors_of_copy();
  } else {
    state.tensors = tensors_of_trainer();
  }
  if (is_first) {
    add_curves(state.tensors, *state.curves);
    return begin(std::move(state));
  }
  // The first rank needs every moment twice, to hash it and to write it.
  for (int pass = 0; pass < 2 && !copies_ && trainer_.sharing().size() > 1; ++pass) {
    for (const NamedTensor& tensor : state.tensors) {
      if (tensor.read) tensor.read();
    }
  }
}

// If no thread can be started, the calling one writes.
void StateWriter::begin(State state) {
  step_under_way_ = state.curves->step;
  if (copies_) {
    const auto shared = std::make_shared<State>(std::move(state));
    try {
      under_way_ = std::async(std::launch::async, [this, shared] { write(*shared); });
      return;
    } catch (const std::system_error&) {
      write(*shared);
    }
  } else {
    write(state);
  }
  written_.push_back(step_under_way_);
}

void StateWriter::wait() {
  if (!under_way_.valid()) return;
  under_way_.get();
  written_.push_back(step_under_way_);
}

std::vector<std::uint64_t> StateWriter::take_written() {
  if (under_way_.valid() && under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
  return std::exchange(written_, {});
}

void StateWriter::write(State& state) const {
  const std::uint64_t step = state.curves->step;
  make_folders(folder_);
  remove_half_made(folder_);
  fail_point("train.save.begin");
  write_safetensors(fmt::format("{}/step-{:08}.safetensors", folder_, step), state.tensors,
                    {{"format", kStateFormat},
                     {"version", std::to_string(kStateVersion)},
                     {"step", std::to_string(step)},
                     {"updates", std::to_string(state.updates)},
                     {"identity", identity_.digest},
                     {"experiment", identity_.experiment},
                     {"sha256", state_sha256(state.tensors, step, state.updates)}});
  fail_point("train.save.done");
  const std::vector<fs::path> states = states_in(folder_);
  for (std::size_t i = 0; i + keep_ < states.size(); ++i) {
    std::error_code ignored;
    fs::remove(states[i], ignored);
  }
}

}  // namespace magister
