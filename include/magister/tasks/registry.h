// The registry of the built-in tasks.
#pragma once

#include "magister/run/task_kinds.h"

namespace magister {

TaskKinds built_in_tasks();

}  // namespace magister
