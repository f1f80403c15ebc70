// States of a training on disk: <folder>/step-00000200.safetensors holds the trained weights (with LoRA the
// adapter alone), moments and curves, and says in its metadata which step
// and which experiment it is, with a sha256 of all tensors. Any number of ranks reads it. Written whole or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/train/trainer.h"

namespace magister {

// What a training has done, beside weights and moments.
struct TrainingCurves {
  std::uint64_t step = 0;              // steps that are done
  std::vector<float> loss, grad_norm;  // [step]; not finite where a step was skipped
  // [step][width], the width given by whoever saves and loads them. Of pairs 3: mean rewards of chosen and rejected answers, accuracy.
  std::vector<float> rewards;
  // Held-out losses, in the order in which they were computed, at most four numbers each; empty: there are none.
  std::vector<float> evaluations;
  // Steps at the end of the curves that were skipped.
  std::uint64_t skipped_in_a_row() const;
  std::uint64_t skipped() const;
};

// Path of the newest state, sound or not; nothing: there is none. Local.
std::optional<std::string> newest_training_state(const std::string& folder);

// Of the newest state that can be read, unverified: for people. Nothing: there is none. Local.
struct SavedStep {
  std::uint64_t step = 0;  // that was done last
  float loss = 0;
};
std::optional<SavedStep> newest_saved_step(const std::string& folder);

// Whose states they are: a digest of all that decides the training, and the experiment as the results hold it, from which a refusal names the keys
// that differ; states of earlier builds have none.
struct StateIdentity {
  std::string digest, experiment = {};
};

// Removes all but the last `keep`. The first rank writes; a divided optimizer's moments come to it, a
// parameter at a time. Collective over the trainer's world.
void save_training_state(const std::string& folder, Trainer& trainer, const TrainingCurves& curves,
                         const StateIdentity& identity, std::uint64_t keep);

// The newest state that is sound.
struct LoadedState {
  std::string path;  // empty: there is no state at all
  TrainingCurves curves;
  struct Damaged {
    std::string path, problem;
  };
  std::vector<Damaged> damaged;  // those that are newer
};
// Goes on from the newest state that is neither cut nor changed: all of them lead to the same weights. Throws the newest one's fault where
// none is: Error(kData); so does one of a newer version, and another experiment's Error(kConfig). rewards: the width of the curves of
// rewards; 0: it has none. Collective over the trainer's world.
LoadedState load_training_state(const std::string& folder, Trainer& trainer, const StateIdentity& identity,
                                std::int64_t rewards);
// The weights of one state alone, into a flat tensor. Throws Error(kData) for one that is cut, changed, or of a newer version, Error(kConfig)
// for another experiment's. Local.
TrainingCurves load_trained_weights(const std::string& path, const FlatLayout& layout, at::Tensor& flat_weights,
                                    const StateIdentity& identity, std::int64_t rewards);

}  // namespace magister
