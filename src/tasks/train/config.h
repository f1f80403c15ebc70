// The keys of `task: train`. configs/README.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "magister/core/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/experiment_config.h"
#include "magister/run/task_kinds.h"
#include "magister/train/batch_plan.h"
#include "magister/train/trainer.h"

namespace magister {

struct TrainConfig {
  std::string name = "student";
  ModelSection model;
  DatasetConfig dataset;
  bool assistant_only = false;  // of chats: learn the assistant's tokens alone
  bool append_eos = true;       // to texts
  BatchOptions batches;
  TrainerOptions trainer;
  LrSchedule schedule = LrSchedule::kLinear;
  double warmup = 0;  // below 1: a part of all steps; else steps
  std::uint64_t save_every = 500, keep = 2;
  std::string length_place;  // file:line:column and key

  std::uint64_t warmup_steps(std::uint64_t total_steps) const;
};

TrainConfig read_train_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/train/task.cpp).
TaskKind train_task();

}  // namespace magister
