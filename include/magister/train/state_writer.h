// Writes the states of a training (train/checkpoint.h): hash, file, fsync, rename. If the host has memory for a copy of
// weights and moments, all of that happens on a thread while the next steps compute; from a GPU the copy itself is made
// while the next step differentiates (device/copy_queue.h). A state has the same bytes either way, and it has its name
// only when it is whole and durable.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/checkpoint/safetensors_writer.h"
#include "magister/train/checkpoint.h"
#include "magister/train/trainer.h"

namespace magister {

class StateWriter {
 public:
  // The states of `identity` in `folder`, of which the last `keep` stay. trainer is kept by reference. copies: the
  // first rank copies what it writes, into 12 bytes of host memory per trained number, which stay from state to state;
  // where all ranks have their part of the moments on a GPU, each of the others copies it, too, into 8 bytes per number
  // of the part. The same on all ranks. Collective over the trainer's world.
  StateWriter(std::string folder, Trainer& trainer, StateIdentity identity, std::uint64_t keep, bool copies);
  // Gives up a state under way: it ends at its next block and leaves no file. Local.
  ~StateWriter();
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  // Begins a state when the one before it is written; returns when curves may change, and the trainer may go on. With
  // copies the state is then under way, else on disk. The first rank writes; the moments of a divided optimizer are
  // sent to it, here or in collect(). Throws Error(kInputOutput) if this state or the one before it cannot be written.
  // Collective over the trainer's world.
  void save(const TrainingCurves& curves);
  // After the step that follows a state, and before anything that takes long: sends the ranks' copies of moments to the
  // first one, which begins to write, if save() has not done that. Collective over the trainer's world.
  void collect();
  // Returns when no state is under way. Throws the error of its write. Collective over the trainer's world.
  void wait();
  // The steps of the states that are on disk since the last call; none except on the first rank. Throws the error of a
  // write that has failed. Local.
  std::vector<std::uint64_t> take_written();

 private:
  struct State;
  bool is_first() const { return trainer_.world().rank() == 0; }
  void take_memory();
  void copy_numbers();
  void gather_moments();
  std::vector<NamedTensor> tensors_of_copy() const;
  std::vector<NamedTensor> tensors_of_trainer() const;
  void begin(const std::shared_ptr<State>& state);
  void write(State& state) const;
  void finish_write();

  std::string folder_;
  Trainer& trainer_;
  StateIdentity identity_;
  std::uint64_t keep_;
  bool copies_;
  bool collects_ = false;   // all ranks copy their part of the moments, which collect() sends
  bool is_pinned_ = false;  // the copy is in memory that the GPU reaches, so it runs beside a step
  // The copy, f32. On the first rank [flat size] each; on the others, with collects_, moments [size of their part].
  at::Tensor weights_, mean_, square_;
  std::shared_ptr<State> copied_;  // collect() begins it
  std::future<void> under_way_;
  std::atomic<bool> given_up_ = false;
  std::uint64_t step_under_way_ = 0;
  std::vector<std::uint64_t> written_;  // steps
};

}  // namespace magister
