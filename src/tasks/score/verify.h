// Scores by a rule: whether completions, of the records or of a generate task, give the answers that the records hold. No model is loaded.
#pragma once

#include <memory>

#include "magister/run/task.h"
#include "tasks/score/config.h"

namespace magister {

// config.verifier is there; config and inputs are kept by reference. Collective over the world.
std::unique_ptr<TaskJob> make_verifier_job(const ScoreConfig& config, const TaskInputs& inputs);

}  // namespace magister
