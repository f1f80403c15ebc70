// Functions about files and plans that task_life.cpp and task_plan.cpp share.
#pragma once

#include <cstdint>
#include <string>

#include "magister/io/results/results_file.h"
#include "magister/run/sample_plan.h"
#include "magister/run/task.h"

namespace magister {

PlanNumbers numbers_of(const SamplePlan& plan);
// The bytes that the file system must still allocate to a sparse file. Local.
std::uint64_t missing_bytes(const std::string& path);
// The identity without the CPU's kind of bf16 products, for code that reads the results and computes nothing: a
// complete file is complete on every CPU, and a login node may plan for other nodes.
Attributes on_any_cpu(Attributes expected);

}  // namespace magister
