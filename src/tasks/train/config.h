// The keys of `task: train`. configs/keys/train.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/length_key.h"
#include "magister/train/batch_plan.h"
#include "magister/train/trainer.h"
#include "tasks/train/grpo_config.h"
#include "tasks/train/pairs.h"
#include "tasks/train/values.h"

namespace magister {

// The results of a teacher_logits task: a path, or an earlier task of the experiment.
struct TeacherSource {
  std::string results, task;  // a path that no earlier task writes, or a task
  std::string place;          // file:line:column and key
};

// Records whose loss is computed beside the training, and after how many steps each time.
struct HeldOutConfig {
  DatasetConfig dataset;
  TeacherSource teacher;  // of a distillation, in its place
  std::uint64_t every = 500;
};

struct TrainConfig {
  std::string name = "student";
  ModelSection model;
  DatasetConfig dataset;        // of `lm`
  bool distills = false;        // learns from a teacher's results, which hold the tokens: there is no data set
  TeacherSource teacher;        // of `distill`
  bool assistant_only = false;  // of chats: learn the assistant's tokens alone
  bool append_eos = true;       // to texts
  TruncationMode truncation = TruncationMode::kKeepStart;  // of `dpo`
  GrpoConfig grpo;
  bool values = false;  // a value model: learns from rollouts, which hold the tokens
  ValueConfig value;
  BatchOptions batches;     // of GRPO in prompts
  std::uint64_t steps = 0;  // of GRPO, as `steps` says; 0: as epochs say
  TrainerOptions trainer;
  LrSchedule schedule = LrSchedule::kLinear;
  double warmup = 0;  // below 1: a part of all steps; else steps
  std::uint64_t save_every = 500, keep = 2;
  std::optional<bool> recompute;  // gradient checkpointing; nothing: where only that fits
  double memory_fraction = 0.9;   // of a device's memory, or of the rank's share of its host's
  std::optional<HeldOutConfig> evaluate;
  LengthKey length;                      // train.max_length, which stands in `batches`
  std::string length_place, rank_place;  // of max_length and adapter.rank: file:line:column and key

  Objective objective() const { return trainer.preference.objective; }
  // What is learnt from are two answers to one prompt; of a value model, whose loss is then a reward model's, two continuations.
  bool of_pairs() const { return objective() == Objective::kDpo || objective() == Objective::kReward; }
  // Learns from another task's file instead of a data set.
  bool reads_results() const { return distills || values; }
  // Trains a head of labels.
  bool of_head() const { return objective() == Objective::kReward || objective() == Objective::kValue; }
  std::int64_t head_labels() const { return !of_head() ? 0 : values ? value.head_labels() : 1; }
  // A record is a prompt, and what is learnt is written on the way.
  bool of_prompts() const { return objective() == Objective::kGrpo; }
  // Updates of a plan whose steps are those of `batches`.
  std::uint64_t updates(std::uint64_t plan_steps) const;
  // What the models' positions, 0 for any number, leave of max_length and grpo.max_new_tokens where they are `auto`.
  void fit_lengths(std::uint64_t positions, Notes& notes);
  // Tokens of the longest prompt beside which a text still fits into max_length.
  std::uint64_t longest_prompt() const { return batches.max_length - grpo.max_new_tokens; }
  // Whether the working file marks the tokens that are learnt.
  bool marks() const { return assistant_only || distills || values || objective() == Objective::kDpo; }
  std::uint64_t warmup_steps(std::uint64_t total_steps) const;
};

TrainConfig read_train_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/train/task.cpp).
TaskKind train_task();

}  // namespace magister
