// Two counters a task.
#include "magister/parallel/task_states.h"

#include "magister/parallel/communicator.h"
#include "parallel/shared_counters.h"

namespace magister {
namespace {

int begun_counter(std::size_t task) { return 2 * static_cast<int>(task); }
int outcome_counter(std::size_t task) { return begun_counter(task) + 1; }

}  // namespace

TaskStates::TaskStates(const Communicator& world, std::size_t num_tasks)
    : num_tasks_(num_tasks), counters_(make_shared_counters(world, begun_counter(num_tasks))) {}
TaskStates::~TaskStates() = default;

bool TaskStates::begin(std::size_t task) { return counters_->fetch_add(begun_counter(task), 1) == 0; }
void TaskStates::end(std::size_t task, std::uint64_t outcome) { counters_->fetch_add(outcome_counter(task), outcome); }

std::vector<TaskStates::State> TaskStates::read() const {
  const std::vector<std::uint64_t> counters = counters_->read(0, begun_counter(num_tasks_));
  std::vector<State> states;
  for (std::size_t i = 0; i < num_tasks_; ++i) states.push_back({counters[2 * i] > 0, counters[2 * i + 1]});
  return states;
}

void TaskStates::free() { counters_->free(); }

}  // namespace magister
