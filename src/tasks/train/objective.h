// Objective: what a training learns from, and how, as the keys say. What is open in a run is OpenObjective
// (open_objective.h), and the losses are the trainer's (src/train/objectives/). One file each in objectives/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "magister/core/config.h"
#include "magister/run/task.h"
#include "magister/runtime/length_key.h"
#include "tasks/train/config.h"
#include "tasks/train/curves.h"

namespace magister {

class OpenObjective;

// Keys that an objective has no use for, with the reason why they are refused; empty: it has.
struct RefusedKeys {
  const char *dataset = "", *append_eos = "", *assistant_only = "", *batch_tokens = "", *packing = "", *evaluate = "";
};
inline constexpr const char* kNothingHeldOut =
    "is given with objective: grpo or value (what they learn from is written on the way, so no loss can be held out); "
    "remove it";

void fit_max_length(TrainConfig& config, const Positions& own, const PositionsOf& of, Notes& notes);
ModelWork work_of_sequences(const TrainConfig& config, double samples, double tokens);

struct Objective {
  ObjectiveKind kind;
  const char* name;  // as `objective` and the identity have it
  double default_lr;
  const char* items = "sequences";    // that a step takes
  const char* learns_from = nullptr;  // kind of the task whose results are learnt from; null: a data set
  // Of a sample without marks the first token counts, too: it is read whole. Else no row predicts it.
  bool first_token_counts = false;
  bool has_margins = false;  // records may say by how much an answer is better
  RefusedKeys refused{};
  const CurveSet* held_out_curves = &kHeldOutTokenCurves;

  // The keys that are its own, whether it is the training's or not. Faults go to the node.
  void (*read)(ConfigNode& task, const ExperimentConfig& experiment,
               TrainConfig& config) = [](ConfigNode&, const ExperimentConfig&, TrainConfig&) {};
  // What it makes of the keys of `train` and of the data set. Faults go to the nodes.
  void (*read_batches)(ConfigNode& task, ConfigNode& train, TrainConfig& config) = [](ConfigNode&, ConfigNode&,
                                                                                      TrainConfig&) {};
  // See Task::fit_lengths() and Task::model_work().
  void (*fit_lengths)(TrainConfig& config, const Positions& own, const PositionsOf& of, Notes& notes) = fit_max_length;
  ModelWork (*model_work)(const TrainConfig& config, double samples, double tokens) = work_of_sequences;
  // What is learnt from are two texts of which one was preferred.
  bool (*of_pairs)(const TrainConfig& config) = [](const TrainConfig&) { return false; };
  // Numbers of the head that is trained; 0: the one over the vocabulary.
  std::int64_t (*head_labels)(const TrainConfig& config) = [](const TrainConfig&) { return std::int64_t{0}; };
  // What it says of a token that the working file marks it; null: it marks none.
  const char* (*marks)(const TrainConfig& config) = [](const TrainConfig&) -> const char* { return nullptr; };
  const CurveSet& (*curves)(const TrainConfig& config) = [](const TrainConfig&) -> const CurveSet& {
    return kNoCurves;
  };
  // Opens what it learns from, or what stands in for what an earlier task makes. Both are kept by reference. Throws
  // Error(kConfig) for what the model cannot do. Collective over the world.
  std::unique_ptr<OpenObjective> (*open)(const TrainConfig& config, const TaskInputs& inputs);
};

extern const Objective kLmObjective, kDistillObjective, kDpoObjective, kRewardObjective, kGrpoObjective,
    kValueObjective;
// In the order in which messages list them.
inline constexpr const Objective* kObjectives[] = {&kLmObjective,     &kDistillObjective, &kDpoObjective,
                                                   &kRewardObjective, &kGrpoObjective,    &kValueObjective};

// Tokens of a sample that are learnt from; of a reward model, which reads one number of it, and of a prompt all.
// assistant: its marks, where the task has some.
std::uint32_t learnt_tokens(const TrainConfig& config, std::uint64_t length, std::span<const std::uint8_t> assistant);

}  // namespace magister
