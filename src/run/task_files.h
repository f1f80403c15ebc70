// What running and planning a task both ask of files and plans.
#pragma once

#include <cstdint>
#include <string>

#include "magister/io/results/results_file.h"
#include "magister/run/sample_plan.h"
#include "magister/run/task.h"

namespace magister {

PlanNumbers numbers_of(const SamplePlan& plan);
// What the file system must still give to a file that was made sparse. Local.
std::uint64_t missing_bytes(const std::string& path);
// An identity for what reads the results and computes nothing: a complete file is complete on every CPU, and a login node may plan for others.
Attributes on_any_cpu(Attributes expected);

}  // namespace magister
