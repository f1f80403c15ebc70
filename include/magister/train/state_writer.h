// Writes the states of a training (train/checkpoint.h): hash, file, fsync, rename. If the host has memory for a copy of
// weights and moments, all of that happens on a thread while the next steps compute. A state has the same bytes either
// way, and it has its name only when it is whole and durable.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
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
  // the same on all ranks. Local.
  StateWriter(std::string folder, Trainer& trainer, StateIdentity identity, std::uint64_t keep, bool copies)
      : folder_(std::move(folder)), trainer_(trainer), identity_(std::move(identity)), keep_(keep), copies_(copies) {}
  // Waits until a state under way is written.
  ~StateWriter();
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  // Begins a state when the one before it is written; returns when weights, moments and curves may change. With copies
  // the state is then under way, else on disk. The first rank writes; the moments of a divided optimizer are sent to
  // it. Throws Error(kInputOutput) if this state or the one before it cannot be written. Collective over the trainer's
  // world.
  void save(const TrainingCurves& curves);
  // Returns when no state is under way. Throws the error of its write. Local.
  void wait();
  // The steps of the states that are on disk since the last call; none except on the first rank. Throws the error of a
  // write that has failed. Local.
  std::vector<std::uint64_t> take_written();

 private:
  struct State;
  void copy_numbers();
  std::vector<NamedTensor> tensors_of_copy() const;
  std::vector<NamedTensor> tensors_of_trainer() const;
  void begin(State state);
  void write(State& state) const;

  std::string folder_;
  Trainer& trainer_;
  StateIdentity identity_;
  std::uint64_t keep_;
  bool copies_;
  at::Tensor weights_, mean_, square_;  // the copy, f32 [flat size], on the first rank
  std::future<void> under_way_;
  std::uint64_t step_under_way_ = 0;
  std::vector<std::uint64_t> written_;  // steps
};

}  // namespace magister
