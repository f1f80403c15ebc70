// The compute loop of teacher logits: every shard of this rank runs the model over the units that its group claims.
#pragma once

#include <cstdint>

#include "magister/io/results/teacher_encoding.h"
#include "magister/run/shard_model.h"

namespace magister {

struct TeacherRun {
  ModelRun base;
  TeacherEncoding encoding;
  bool half;
  bool assistant_only;  // rows whose next token is not the assistant's are left empty, their head is not computed
  std::uint64_t seed;   // of the draws of sampled rows
};

// Runs until no unit is left or the job stops; committed units stay. Collective over the group.
void run_teacher_units(const TeacherRun& run);

}  // namespace magister
