// The compute loop of teacher logits: every shard of this rank runs the model over the units that its group draws.
#pragma once

#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <functional>

#include "magister/io/results_file.h"
#include "magister/io/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/model/quantize.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/unit_tickets.h"
#include "magister/parallel/watchdog.h"
#include "magister/tasks/progress.h"

namespace magister {

struct TeacherRun {
  const GpuGroup& group;
  ResultsFile& file;
  UnitTickets& tickets;
  Watchdog& watchdog;
  const ModelDescription& model;
  const TensorFile& weights;
  at::ScalarType dtype;
  QuantScheme quantization;
  std::int64_t top_k;
  bool half;
  bool assistant_only;                 // rows whose next token is not the assistant's are left empty, their head is not computed
  std::function<bool()> stop_wanted;   // signal or wall time: asked often, from one thread
  std::function<void()> unit_finished; // progress, called by the leader after each unit
  PhaseTimes& times;                   // of this rank's first shard
};

// Runs until no unit is left or the job stops; committed units stay. Collective over the group.
void run_teacher_units(const TeacherRun& run);

}  // namespace magister
