// The registry of tasks: those that are built in.
#pragma once

#include "magister/run/task_kinds.h"

namespace magister {

TaskKinds built_in_tasks();

}  // namespace magister
