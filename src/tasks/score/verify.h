// Scores by a rule: 1 if a completion, of the record or of a generate task, gives an answer that the record holds, else
// 0. No model is loaded.
#pragma once

#include <memory>

#include "magister/run/task.h"
#include "tasks/score/config.h"

namespace magister {

// config.verifier must be set; config and inputs are kept by reference. Collective over the world.
std::unique_ptr<TaskJob> make_verifier_job(const ScoreConfig& config, const TaskInputs& inputs);

}  // namespace magister
