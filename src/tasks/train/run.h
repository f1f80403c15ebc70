// The loop over the steps of a training, on every rank.
#pragma once

#include <string>

#include "magister/run/run_context.h"
#include "magister/run/shard_model.h"
#include "magister/run/task.h"
#include "magister/train/checkpoint.h"
#include "magister/train/parameters.h"
#include "magister/train/training_bytes.h"
#include "tasks/train/config.h"
#include "tasks/train/held_out.h"
#include "tasks/train/open_objective.h"

namespace magister {

struct TrainingWork {
  const RunContext& context;
  const TrainConfig& config;
  const ParameterLayout& layout;
  const TensorFile& weights;  // the first weights
  OpenObjective& open;
  std::string states;  // folder of the saved states
  StateIdentity identity;
  NewHead new_head{};
  TrainingShape shape{};        // how memory is used
  int passes_at_once = 0;       // limit on micro-batches at once if memory is short; 0: one per thread
  HeldOut* held_out = nullptr;  // held-out records; null: there are none
};

// Resumes from the newest sound state and sets newer damaged ones aside. Runs until all steps are done or the job
// stops, then saves a state. After the last step, commits the units of the working file. Throws Error(kData) after
// three skipped steps in a row. Collective over the world.
void run_training(const ModelRun& run, const TrainingWork& work, const PlanNumbers& plan);

}  // namespace magister
