// Training states on disk: <folder>/step-00000200.safetensors holds the trained weights (with LoRA only the adapter),
// moments and curves. Its metadata names the step and the experiment, with a SHA-256 of all tensors. Any number of
// ranks can read it. A file is written completely or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/train/trainer.h"

namespace magister {

// Progress of a training, apart from weights and moments.
struct TrainingCurves {
  std::uint64_t step = 0;              // completed steps
  std::vector<float> loss, grad_norm;  // [step]; not finite if the step was skipped
  // [step][width]; the code that saves and loads chooses the width. For pairs 3: mean rewards of chosen and rejected
  // answers, accuracy.
  std::vector<float> rewards;
  // Held-out losses in the order of computation, at most four numbers each; empty: none.
  std::vector<float> evaluations;
  // Number of skipped steps at the end of the curves.
  std::uint64_t skipped_in_a_row() const;
  std::uint64_t skipped() const;
};

// Path of the newest state, sound or not; nothing: there is none. Local.
std::optional<std::string> newest_training_state(const std::string& folder);

// Progress saved in the newest readable state, not verified, for display. Nothing: there is none. Local.
struct SavedStep {
  std::uint64_t step = 0;  // last completed step
  float loss = 0;
};
std::optional<SavedStep> newest_saved_step(const std::string& folder);

// The training that a state belongs to: a digest of everything that decides the training, and the experiment as the
// results hold it, from which an error names the keys that differ. States of earlier builds have no experiment.
struct StateIdentity {
  std::string digest, experiment = {};
};

// The newest sound state.
struct LoadedState {
  std::string path;  // empty: there is no state at all
  TrainingCurves curves;
  struct Damaged {
    std::string path, problem;
  };
  std::vector<Damaged> damaged;  // damaged states that are newer
};
// Resumes from the newest state that is neither truncated nor changed; all states lead to the same weights. If every
// state is damaged, throws the newest one's error, Error(kData). A state of a newer version is Error(kData), one of
// another experiment Error(kConfig). rewards: width of the curves of rewards; 0: none. Collective over the trainer's
// world.
LoadedState load_training_state(const std::string& folder, Trainer& trainer, const StateIdentity& identity,
                                std::int64_t rewards);
// Throws, on all ranks alike, what load_training_state() would throw by the metadata of the states alone: a training
// that they do not belong to is refused before it makes a file. A damaged tensor is not noticed. Collective over world.
void check_training_states(const Communicator& world, const std::string& folder, const StateIdentity& identity);
// Reads only the weights of one state, into a flat tensor. Throws Error(kData) if it is truncated, changed or of a
// newer version, Error(kConfig) if it belongs to another experiment. Local.
TrainingCurves load_trained_weights(const std::string& path, const FlatLayout& layout, at::Tensor& flat_weights,
                                    const StateIdentity& identity, std::int64_t rewards);

}  // namespace magister
