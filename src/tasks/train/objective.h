// Objective: what a training learns from, and how, as the keys say; each has a file in objectives/. OpenObjective
// (open_objective.h) is an objective in a run, and the trainer has the losses (src/train/objectives/).
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

// Reasons why an objective refuses keys that it does not use; empty: the key is used.
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
  const char* name;  // its name in the key `objective` and in the identity
  double default_lr;
  const char* items = "sequences";    // name of the items of a step, for messages
  const char* learns_from = nullptr;  // kind of the task whose results are the data; null: a data set is
  // True: in a sample without marks the first token counts as learnt, since the sample is read as a whole. False: it
  // does not count, since no row predicts it.
  bool first_token_counts = false;
  bool has_margins = false;  // records may give the margin by which an answer is better
  RefusedKeys refused{};
  const CurveSet* held_out_curves = &kHeldOutTokenCurves;

  // Reads the own keys of the objective, also if the training has another objective. Faults go to the node.
  void (*read)(ConfigNode& task, const ExperimentConfig& experiment,
               TrainConfig& config) = [](ConfigNode&, const ExperimentConfig&, TrainConfig&) {};
  // Adjusts the config after the keys of `train` and of the data set are read. Faults go to the nodes.
  void (*read_batches)(ConfigNode& task, ConfigNode& train, TrainConfig& config) = [](ConfigNode&, ConfigNode&,
                                                                                      TrainConfig&) {};
  // See Task::fit_lengths() and Task::model_work().
  void (*fit_lengths)(TrainConfig& config, const Positions& own, const PositionsOf& of, Notes& notes) = fit_max_length;
  ModelWork (*model_work)(const TrainConfig& config, double samples, double tokens) = work_of_sequences;
  // True: an item is a pair of texts, of which one is preferred.
  bool (*of_pairs)(const TrainConfig& config) = [](const TrainConfig&) { return false; };
  // Number of outputs of the head that is trained; 0: the language model head is used.
  std::int64_t (*head_labels)(const TrainConfig& config) = [](const TrainConfig&) { return std::int64_t{0}; };
  // Comment of the column /tokens/assistant, which marks tokens; null: tokens are not marked.
  const char* (*marks)(const TrainConfig& config) = [](const TrainConfig&) -> const char* { return nullptr; };
  const CurveSet& (*curves)(const TrainConfig& config) = [](const TrainConfig&) -> const CurveSet& {
    return kNoCurves;
  };
  // Opens the data, or a placeholder for the results of an earlier task. config and inputs are kept by reference.
  // Throws Error(kConfig) if the model does not fit the objective. Collective over the world.
  std::unique_ptr<OpenObjective> (*open)(const TrainConfig& config, const TaskInputs& inputs);
};

extern const Objective kLmObjective, kDistillObjective, kDpoObjective, kRewardObjective, kGrpoObjective,
    kValueObjective;
// The order is that of messages.
inline constexpr const Objective* kObjectives[] = {&kLmObjective,     &kDistillObjective, &kDpoObjective,
                                                   &kRewardObjective, &kGrpoObjective,    &kValueObjective};

// Number of tokens of a sample that are learnt; all tokens for a head of labels and for prompts. assistant: the marks
// of the sample; empty if the task has none.
std::uint32_t learnt_tokens(const TrainConfig& config, std::uint64_t length, std::span<const std::uint8_t> assistant);

}  // namespace magister
