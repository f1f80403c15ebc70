// The registry of tasks. One line a task; nothing registers itself behind the reader's back.
#include "magister/tasks/registry.h"

#include "tasks/generate/config.h"
#include "tasks/judge/config.h"
#include "tasks/teacher_logits/config.h"

namespace magister {

namespace {

struct TaskKind {
  const char* name;  // what `task:` says
  std::unique_ptr<Task> (*read)(ConfigNode&, const ExperimentConfig&);
};

constexpr TaskKind kTaskKinds[] = {
    {"teacher_logits",
     [](ConfigNode& node, const ExperimentConfig& experiment) {
       return make_teacher_logits(read_teacher_logits_config(node, experiment));
     }},
    {"generate",
     [](ConfigNode& node, const ExperimentConfig& experiment) {
       return make_generate(read_generate_config(node, experiment));
     }},
    {"judge", [](ConfigNode& node,
                 const ExperimentConfig& experiment) { return make_judge(read_judge_config(node, experiment)); }},
};

}  // namespace

std::vector<std::string> task_kinds() {
  std::vector<std::string> kinds;
  for (const TaskKind& kind : kTaskKinds) kinds.emplace_back(kind.name);
  return kinds;
}

std::unique_ptr<Task> read_task(ConfigNode& node, const ExperimentConfig& experiment) {
  const std::string name = node.choice("task", task_kinds());
  for (const TaskKind& kind : kTaskKinds) {
    if (name == kind.name) return kind.read(node, experiment);
  }
  node.abandon();
  return nullptr;
}

}  // namespace magister
