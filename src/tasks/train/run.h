// The loop over the steps of a training, on every rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "magister/run/run_context.h"
#include "magister/run/shard_model.h"
#include "magister/run/task.h"
#include "magister/train/checkpoint.h"
#include "magister/train/parameters.h"
#include "magister/train/teacher_rows.h"
#include "magister/train/training_bytes.h"
#include "tasks/train/config.h"
#include "tasks/train/evaluation.h"
#include "tasks/train/rollouts.h"

namespace magister {

struct TrainingWork {
  const RunContext& context;
  const TrainConfig& config;
  const ParameterLayout& layout;
  const TensorFile& weights;  // to begin with
  TeacherFile* teacher;       // of a distillation; else null
  std::string states;         // folder of the states
  StateIdentity identity;
  // Of pairs: the margin of every record of the data set, in order; empty: none. Collective over the world.
  std::function<std::vector<double>()> read_margins{};
  // Of a value model: the labels of all samples. Likewise.
  std::function<std::vector<double>()> read_labels{};
  TokenId pad_token_id = -1;  // of a reward model
  NewHead new_head{};
  TrainingShape shape{};        // what memory is spent on
  int passes_at_once = 0;       // where it is not enough for one a thread; 0: it is
  TextRules texts{};            // of GRPO
  HeldOut* held_out = nullptr;  // the records of train.evaluate; null: there are none
};

// Goes on from the newest state that is sound and puts damaged ones that are newer aside, until all steps are done or the job stops; then a state is saved. When all are done the working file's
// units are committed. Throws Error(kData) after three steps in a row that had to be skipped. Collective over the world.
void run_training(const ModelRun& run, const TrainingWork& work, const PlanNumbers& plan);

}  // namespace magister
