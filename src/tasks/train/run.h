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
  const TensorFile& weights;  // to begin with
  OpenObjective& open;
  std::string states;  // folder of the states
  StateIdentity identity;
  NewHead new_head{};
  TrainingShape shape{};        // what memory is spent on
  int passes_at_once = 0;       // where it is not enough for one a thread; 0: it is
  HeldOut* held_out = nullptr;  // the records of train.evaluate; null: there are none
};

// Goes on from the newest state that is sound and puts damaged ones that are newer aside, until all steps are done or
// the job stops; then a state is saved. When all are done the working file's units are committed. Throws Error(kData)
// after three steps in a row that had to be skipped. Collective over the world.
void run_training(const ModelRun& run, const TrainingWork& work, const PlanNumbers& plan);

}  // namespace magister
