// The keys of `task: train`. configs/keys/train*.md list each with default and range; keep both in step.
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

// Results of another task that a training learns from instead of a data set: teacher logits or rollouts.
struct ResultsSource {
  std::string results, task;  // the path of a file that no earlier task writes, or a task of the experiment
  std::string place;          // file:line:column and key
  // Path of the file. kind: the kind of the task that writes it. Throws Error(kConfig) if there is no such task. Local.
  std::string path(const char* kind, const RunContext& context) const;
};

// The keys of `value`.
struct ValueConfig {
  ValueOptions::Loss loss = ValueOptions::Loss::kBce;
  std::int64_t atoms = 11;                // kHistogram: outputs of the head; their rewards are evenly spaced
  bool labels_are_rewards = true;         // kBce; false: a label is 1 for the winner of a comparison, 0 for the loser
  double min_reward = 0, max_reward = 1;  // the rewards that become the labels 0 and 1
  std::string range_place;                // file:line:column and key
  bool of_pairs() const { return loss == ValueOptions::Loss::kPreference; }
  std::int64_t head_labels() const { return loss == ValueOptions::Loss::kHistogram ? atoms : 1; }
};

// The keys of `grpo`.
struct GrpoConfig {
  std::uint64_t num_generations = 8, max_new_tokens = 512;
  LengthKey text_length;             // max_new_tokens
  std::uint64_t num_iterations = 1;  // number of updates from the same texts
  SamplingParams sampling;
  PolicyReduction reduction = PolicyReduction::kDapo;
  RewardScale scale = RewardScale::kGroup;
  bool log_completions = false;
  RewardConfig reward;
};

// Held-out records. Their loss is computed before the first step, every `every` steps and after the last step.
struct HeldOutConfig {
  DatasetConfig dataset;
  ResultsSource teacher;  // distillation: teacher logits, used instead of dataset
  std::uint64_t every = 500;
};

struct TrainConfig {
  std::string name = "student";
  ModelSection model;
  DatasetConfig dataset;                                   // empty if the objective learns from the results of a task
  ResultsSource source;                                    // `distill`: the teacher; `value`: the rollouts
  bool assistant_only = false;                             // chats: learn the tokens of the assistant only
  bool append_eos = true;                                  // of texts, not of chats
  TruncationMode truncation = TruncationMode::kKeepStart;  // `dpo`
  GrpoConfig grpo;
  ValueConfig value;
  BatchOptions batches;     // GRPO: counted in prompts
  std::uint64_t steps = 0;  // GRPO: number of updates; 0: `epochs` decides
  TrainerOptions trainer;
  LrSchedule schedule = LrSchedule::kLinear;
  double warmup = 0;  // below 1: a share of all steps; else a number of steps
  std::uint64_t save_every = 500, keep = 2;
  std::optional<bool> recompute;  // gradient checkpointing; nothing: used only if memory is too small without it
  double memory_fraction = 0.9;   // share of a GPU's memory, or of this rank's share of its host's memory
  std::optional<HeldOutConfig> evaluate;
  LengthKey length;                      // train.max_length; its value is batches.max_length
  std::string length_place, rank_place;  // of max_length and adapter.rank: file:line:column and key

  const Objective& objective() const;  // the one of trainer.objective
  // True: an item is a pair of texts, of which one is preferred.
  bool of_pairs() const;
  // Number of samples in an item; a step uses all of them or none.
  std::uint64_t samples_an_item() const { return of_pairs() ? 2 : 1; }
  // Number of outputs of the head that is trained; 0: the language model head is used.
  std::int64_t head_labels() const;
  bool of_head() const { return head_labels() > 0; }
  // True: records are prompts, and the texts to learn from are generated during the training.
  bool of_prompts() const { return trainer.objective == ObjectiveKind::kGrpo; }
  // GRPO: true if the reference model is a second copy of the first weights.
  bool has_reference_weights() const { return trainer.policy.beta > 0 && !trainer.lora; }
  // Number of updates of the training. plan_steps: the steps of a plan made from `batches`.
  std::uint64_t updates(std::uint64_t plan_steps) const { return steps > 0 ? steps : plan_steps * grpo.num_iterations; }
  // Number of tokens of the longest prompt that leaves max_new_tokens within max_length.
  std::uint64_t longest_prompt() const { return batches.max_length - grpo.max_new_tokens; }
  std::uint64_t warmup_steps(std::uint64_t total_steps) const;
};

// The reason why one results file of a teacher is needed, as messages give it.
inline constexpr const char* kOneTeacher = "the student learns from one file of teacher logits";
// Reads the keys `results` and `task` of a section. is_needed: one of them must be given. why: the reason that the
// message gives.
ResultsSource read_results_source(ConfigNode& node, bool is_needed, const ExperimentConfig& experiment,
                                  const char* why);
TrainConfig read_train_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/train/task.cpp).
TaskKind train_task();

}  // namespace magister
