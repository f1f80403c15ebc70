// All tasks are listed here; no task registers itself in another file.
#include "magister/tasks/registry.h"

#include "tasks/evaluate/config.h"
#include "tasks/exam/config.h"
#include "tasks/generate/config.h"
#include "tasks/judge/config.h"
#include "tasks/rollout/config.h"
#include "tasks/score/config.h"
#include "tasks/teacher_logits/config.h"
#include "tasks/train/config.h"

namespace magister {

TaskKinds built_in_tasks() {
  static const TaskKind kinds[] = {teacher_logits_task(), generate_task(), judge_task(),    rollout_task(),
                                   score_task(),          train_task(),    evaluate_task(), exam_task()};
  return kinds;
}

}  // namespace magister
