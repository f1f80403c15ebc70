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

namespace {

struct GivenUp {};

}  // namespace

StateWriter::StateWriter(std::string folder, Trainer& trainer, StateIdentity identity, std::uint64_t keep, bool copies)
    : folder_(std::move(folder)), trainer_(trainer), identity_(std::move(identity)), keep_(keep), copies_(copies) {
  if (!copies_ || trainer_.sharing().size() == 1) return;
  collects_ = trainer_.world().min(std::uint64_t{trainer_.trains_on_gpu() ? 1u : 0u}) != 0;
}

StateWriter::~StateWriter() {
  given_up_ = true;
  try {
    if (under_way_.valid()) under_way_.get();
  } catch (const GivenUp&) {
  } catch (const std::exception& error) {  // another error ends the job
    log_warning("{}", error.what());
  }
  try {
    if (is_pinned_) trainer_.copy_queue().wait();  // the memory of the copy is freed
  } catch (const std::exception& error) {
    log_warning("{}", error.what());
  }
}

// Once. Without pinned memory the numbers are copied between two steps, through the two buffers of StagedCopies.
void StateWriter::take_memory() {
  if (mean_.defined()) return;
  const FlatShards& shards = trainer_.shards();
  const std::int64_t of_weights = is_first() ? shards.flat_size() : 0,
                     of_moments = is_first() ? shards.flat_size() : shards.size(trainer_.sharing().rank());
  const std::pair<at::Tensor*, std::int64_t> all[] = {
      {&weights_, of_weights}, {&mean_, of_moments}, {&square_, of_moments}};
  is_pinned_ = trainer_.trains_on_gpu() && (collects_ || trainer_.sharing().size() == 1);
  const bool is_wanted = is_pinned_;
  for (const auto& [numbers, size] : all) {
    if (is_pinned_) *numbers = trainer_.copy_queue().take(size);
    is_pinned_ = is_pinned_ && numbers->defined();
  }
  if (is_pinned_) return;
  if (is_wanted) log_warning("the system gives no pinned memory for the copy of a state (steps wait until it is made)");
  for (const auto& [numbers, size] : all) *numbers = at::empty({size}, at::kFloat);
}

// On a GPU the copies are queued beside the passes of the next step, which read weights and leave moments alone. On
// CPUs they are made here: beside passes they would take the bandwidth of the same memory, and have to end before AdamW
// as well. So they are where not all ranks of a divided optimizer have a GPU.
void StateWriter::copy_numbers() {
  if (!is_first() && !collects_) return gather_moments();
  take_memory();
  const FlatShards& shards = trainer_.shards();
  const OptimizerState& state = trainer_.optimizer();
  std::vector<CopyQueue::Copy> copies;
  if (is_first()) copies.push_back({trainer_.weights(), weights_});
  for (const auto& [part, copy] : {std::pair{&state.mean, &mean_}, {&state.square, &square_}}) {
    if (trainer_.sharing().size() == 1 || !is_first()) {
      copies.push_back({*part, *copy});
      continue;
    }
    for (std::int64_t bucket = 0; bucket < shards.num_buckets() && collects_; ++bucket) {
      const FlatRange piece = shards.piece(bucket, 0);
      copies.push_back(
          {part->narrow(0, shards.offset(bucket, 0), piece.size()), copy->narrow(0, piece.begin, piece.size())});
    }
  }
  if (is_pinned_) {
    trainer_.copy_queue().start(copies);
  } else {
    for (const CopyQueue::Copy& copy : copies) {
      if (const CopyNumbers copy_one = to_host(trainer_)) {
        copy_one(copy.from, copy.to);
      } else {
        copy.to.copy_(copy.from);
      }
    }
  }
  if (!collects_) gather_moments();
}

// Every rank gives its moments to the first one, which takes them in turn: from the copies, or as they are now.
void StateWriter::gather_moments() {
  if (trainer_.sharing().size() == 1) return;
  const FlatShards& shards = trainer_.shards();
  const OptimizerState& state = trainer_.optimizer();
  for (const auto& [part, copy] : {std::pair{&state.mean, &mean_}, {&state.square, &square_}}) {
    const at::Tensor own = !collects_ ? *part : is_first() ? at::Tensor() : *copy;
    for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
      const FlatRange range = shards.bucket_range(bucket);
      range_on_first(trainer_.sharing(), shards, own, range, collects_ ? CopyNumbers() : to_host(trainer_),
                     is_first() ? copy->narrow(0, range.begin, range.size()) : at::Tensor());
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
  const auto state =
      std::make_shared<State>(State{std::make_unique<TrainingCurves>(curves), trainer_.optimizer().updates, {}});
  if (copies_) {
    copy_numbers();
    if (is_first()) state->tensors = tensors_of_copy();
  } else {
    state->tensors = tensors_of_trainer();
  }
  if (is_first()) add_curves(state->tensors, *state->curves);
  if (collects_) {
    copied_ = state;
    return;
  }
  if (is_first()) return begin(state);
  // The first rank needs every moment twice, to hash it and to write it.
  for (int pass = 0; pass < 2 && !copies_ && trainer_.sharing().size() > 1; ++pass) {
    for (const NamedTensor& tensor : state->tensors) {
      if (tensor.read) tensor.read();
    }
  }
}

void StateWriter::collect() {
  if (!copied_) return;
  if (is_pinned_) trainer_.copy_queue().wait();
  gather_moments();
  const std::shared_ptr<State> state = std::exchange(copied_, nullptr);
  if (is_first()) begin(state);
}

// If no thread can be started, the calling one writes.
void StateWriter::begin(const std::shared_ptr<State>& state) {
  step_under_way_ = state->curves->step;
  if (copies_) {
    try {
      under_way_ = std::async(std::launch::async, [this, state] { write(*state); });
      return;
    } catch (const std::system_error&) {  // as without copies
    }
  }
  write(*state);
  written_.push_back(step_under_way_);
}

void StateWriter::wait() {
  collect();
  finish_write();
}

void StateWriter::finish_write() {
  if (!under_way_.valid()) return;
  under_way_.get();
  written_.push_back(step_under_way_);
}

std::vector<std::uint64_t> StateWriter::take_written() {
  if (under_way_.valid() && under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish_write();
  return std::exchange(written_, {});
}

void StateWriter::write(State& state) const {
  const std::uint64_t step = state.curves->step;
  make_folders(folder_);
  remove_half_made(folder_);
  fail_point("train.save.begin");
  if (is_pinned_) trainer_.copy_queue().wait();
  const auto go_on = [this] {
    if (given_up_) throw GivenUp();
  };
  write_safetensors(fmt::format("{}/step-{:08}.safetensors", folder_, step), state.tensors,
                    {{"format", kStateFormat},
                     {"version", std::to_string(kStateVersion)},
                     {"step", std::to_string(step)},
                     {"updates", std::to_string(state.updates)},
                     {"identity", identity_.digest},
                     {"experiment", identity_.experiment},
                     {"sha256", state_sha256(state.tensors, step, state.updates, go_on)}},
                    go_on);
  fail_point("train.save.done");
  const std::vector<fs::path> states = states_in(folder_);
  for (std::size_t i = 0; i + keep_ < states.size(); ++i) {
    std::error_code ignored;
    fs::remove(states[i], ignored);
  }
}

}  // namespace magister
