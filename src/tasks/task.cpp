// The registry of tasks, and the stop sign. One line a task; nothing registers itself behind the reader's back.
#include "magister/tasks/task.h"

#include <chrono>
#include <cstring>

#include "magister/tasks/generate_config.h"
#include "magister/tasks/judge_config.h"
#include "magister/tasks/teacher_logits_config.h"

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
    {"judge",
     [](ConfigNode& node, const ExperimentConfig& experiment) { return make_judge(read_judge_config(node, experiment)); }},
};

}  // namespace

bool StopSign::raised() const {
  if (signal.load(std::memory_order_relaxed) != 0) return true;
  const std::int64_t deadline = deadline_nanoseconds.load(std::memory_order_relaxed);
  return deadline != 0 && std::chrono::steady_clock::now().time_since_epoch() >= std::chrono::nanoseconds(deadline);
}

std::string StopSign::reason() const {
  const int number = signal.load(std::memory_order_relaxed);
  if (number != 0) return fmt::format("signal {} ({})", number, strsignal(number));
  return raised() ? "the end of the wall time" : "";
}

std::vector<std::string> task_kinds() {
  std::vector<std::string> kinds;
  for (const TaskKind& kind : kTaskKinds) kinds.emplace_back(kind.name);
  return kinds;
}

std::unique_ptr<Task> read_task(ConfigNode& node, const ExperimentConfig& experiment) {
  const std::string name = node.text("task");
  for (const TaskKind& kind : kTaskKinds) {
    if (name == kind.name) return kind.read(node, experiment);
  }
  if (!name.empty()) {
    std::string known;
    for (const std::string& kind : task_kinds()) known += (known.empty() ? "" : ", ") + kind;
    const std::string nearest = nearest_name(name, task_kinds());
    node.reject("task", "\"{}\" is no task (known: {}); {}", printable(name, 60), known,
                nearest.empty() ? "write one of them" : "did you mean " + nearest + "?");
  }
  node.abandon();
  return nullptr;
}

}  // namespace magister
