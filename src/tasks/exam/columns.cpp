#include "tasks/exam/columns.h"

#include "magister/run/unit_samples.h"
#include "tasks/exam/objective_writer.h"

namespace magister {

std::vector<ColumnSpec> exam_running_columns(const ExamShape& shape) {
  using namespace exam_column;
  const std::uint64_t n = shape.num_objectives, rows = shape.rows();
  std::vector<ColumnSpec> columns =
      sample_columns(n, shape.num_tokens, shape.key_bytes,
                     "rows of objective i are offset[i] .. offset[i+1] of /tokens", "the objectives' first prompts");
  columns.insert(columns.end(),
                 {kSlotId.spec(n, rows * shape.slots), kSlotLength.spec(n, rows), kSlotState.spec(n, rows),
                  kSlotReasons.spec(n, rows), kSlotBloom.spec(n, rows), kSlotNear.spec(n, rows),
                  kSlotNumber.spec(n, rows * shape.numbers()), kPassage.spec(n, shape.passages)});
  if (shape.writes_objectives) columns.push_back(kWrittenObjective.spec(n, kObjectiveBytes));
  return columns;
}

}  // namespace magister
