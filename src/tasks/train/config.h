// The keys of `task: train`. configs/keys/train.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "magister/core/config.h"
#include "magister/engine/sampler.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/run_context.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/length_key.h"
#include "magister/tasks/rollout/text_reward.h"
#include "magister/train/batch_plan.h"
#include "magister/train/objective.h"
#include "magister/train/policy_loss.h"
#include "magister/train/trainer.h"
#include "magister/train/value_loss.h"
#include "tasks/train/preference_pairs.h"

namespace magister {

struct Objective;  // objective.h

// Results of another task that a training learns from instead of a data set: a teacher's rows, or rollouts.
struct ResultsSource {
  std::string results, task;  // a path that no earlier task writes, or a task of the experiment
  std::string place;          // file:line:column and key
  // The file. kind: of the task that writes it. Throws Error(kConfig) where there is none. Local.
  std::string path(const char* kind, const RunContext& context) const;
};

// The keys of `value`.
struct ValueConfig {
  ValueOptions::Loss loss = ValueOptions::Loss::kBce;
  std::int64_t atoms = 11;                // of kHistogram: numbers of the head, rewards that are as far apart
  bool labels_are_rewards = true;         // of kBce; else 1 for what won its comparison and 0 for what lost it
  double min_reward = 0, max_reward = 1;  // that become the labels 0 and 1
  std::string range_place;                // file:line:column and key
  bool of_pairs() const { return loss == ValueOptions::Loss::kPreference; }
  std::int64_t head_labels() const { return loss == ValueOptions::Loss::kHistogram ? atoms : 1; }
};

// The keys of `grpo`.
struct GrpoConfig {
  std::uint64_t num_generations = 8, max_new_tokens = 512;
  LengthKey text_length;             // max_new_tokens
  std::uint64_t num_iterations = 1;  // updates from the same texts
  SamplingParams sampling;
  PolicyReduction reduction = PolicyReduction::kDapo;
  RewardScale scale = RewardScale::kGroup;
  bool log_completions = false;
  RewardConfig reward;
};

// Records whose loss is computed beside the training, and after how many steps each time.
struct HeldOutConfig {
  DatasetConfig dataset;
  ResultsSource teacher;  // of a distillation, in its place
  std::uint64_t every = 500;
};

struct TrainConfig {
  std::string name = "student";
  ModelSection model;
  DatasetConfig dataset;                                   // where the objective learns from one
  ResultsSource source;                                    // of `distill` the teacher, of `value` the rollouts
  bool assistant_only = false;                             // of chats: learn the assistant's tokens alone
  bool append_eos = true;                                  // to texts
  TruncationMode truncation = TruncationMode::kKeepStart;  // of `dpo`
  GrpoConfig grpo;
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

  const Objective& objective() const;  // that of `trainer`
  // What is learnt from are two texts of which one was preferred.
  bool of_pairs() const;
  // Samples that a step takes or leaves together.
  std::uint64_t samples_an_item() const { return of_pairs() ? 2 : 1; }
  // Numbers of the head of labels that is trained; 0: there is none.
  std::int64_t head_labels() const;
  bool of_head() const { return head_labels() > 0; }
  // A record is a prompt, and what is learnt is written on the way.
  bool of_prompts() const { return trainer.objective == ObjectiveKind::kGrpo; }
  // Of GRPO: a second copy of the first weights.
  bool has_reference_weights() const { return trainer.policy.beta > 0 && !trainer.lora; }
  // Updates of a plan whose steps are those of `batches`.
  std::uint64_t updates(std::uint64_t plan_steps) const { return steps > 0 ? steps : plan_steps * grpo.num_iterations; }
  // Tokens of the longest prompt beside which a text still fits into max_length.
  std::uint64_t longest_prompt() const { return batches.max_length - grpo.max_new_tokens; }
  std::uint64_t warmup_steps(std::uint64_t total_steps) const;
};

// Why one results file of a teacher is needed.
inline constexpr const char* kOneTeacher = "the student learns from one file of teacher logits";
// The keys `results` and `task` of a section. is_needed: one of them must be there. why: for the message, what learns
// from the file.
ResultsSource read_results_source(ConfigNode& node, bool is_needed, const ExperimentConfig& experiment,
                                  const char* why);
TrainConfig read_train_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/train/task.cpp).
TaskKind train_task();

}  // namespace magister
