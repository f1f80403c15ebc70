// The graph is built by names; the schedule is computed event by event, in log(tasks) each.
#include "app/task_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>

namespace magister {

TaskNeeds needs_of(const Experiment& experiment) {
  TaskNeeds all;
  std::unordered_map<std::string, std::size_t> earlier;
  for (const auto& task : experiment.tasks()) {
    std::vector<std::size_t>& needs = all.emplace_back();
    for (const std::string& name : task->needs()) {
      if (const auto found = earlier.find(name); found != earlier.end()) needs.push_back(found->second);
    }
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    earlier.emplace(task->name(), earlier.size());
  }
  return all;
}

bool is_chain(const TaskNeeds& needs) {
  for (std::size_t i = 1; i < needs.size(); ++i) {
    if (!std::binary_search(needs[i].begin(), needs[i].end(), i - 1)) return false;
  }
  return true;
}

bool may_overlap(const TaskNeeds& needs, int num_groups, int at_once) {
  return at_once != 1 && num_groups > 1 && !is_chain(needs);
}

TaskSchedule::TaskSchedule(const TaskNeeds& needs, const std::vector<Task>& tasks, int num_groups, int most_at_once)
    : tasks_(tasks),
      most_at_once_(static_cast<std::size_t>(most_at_once > 0 ? std::min(most_at_once, num_groups) : num_groups)),
      chain_cost_(needs.size(), 0),
      needed_by_(needs.size()),
      out_(needs.size(), false),
      team_of_(static_cast<std::size_t>(num_groups), needs.size()),
      team_size_(needs.size() + 1, 0),
      team_free_(needs.size() + 1, 0),
      num_waiting_(needs.size()) {
  team_size_.back() = team_of_.size();
  for (std::size_t i = needs.size(); i-- > 0;) {
    chain_cost_[i] += tasks[i].cost;
    for (const std::size_t j : needs[i]) chain_cost_[j] = std::max(chain_cost_[j], chain_cost_[i]);
  }
  for (std::size_t i = 0; i < needs.size(); ++i) {
    unmet_.push_back(needs[i].size());
    for (const std::size_t j : needs[i]) needed_by_[j].push_back(i);
    if (unmet_[i] == 0) add_ready(i);
  }
}

void TaskSchedule::add_ready(std::size_t task) {
  ready_.emplace(-chain_cost_[task], task);
  ready_cost_ += tasks_[task].cost;
}

std::size_t TaskSchedule::pop_ready() {
  const std::size_t task = ready_.begin()->second;
  ready_.erase(ready_.begin());
  ready_cost_ = ready_.empty() ? 0 : ready_cost_ - tasks_[task].cost;
  return task;
}

void TaskSchedule::group_is_free(int group) {
  const std::size_t team = team_of_[static_cast<std::size_t>(group)];
  if (team_free_[team]++ == 0) ++num_leaving_;
  if (team_free_[team] == team_size_[team]) --num_leaving_;
  free_.insert(group);
}

void TaskSchedule::task_ended(std::size_t task, bool done) {
  --num_running_;
  if (!done) return leave_out(task);
  for (const std::size_t next : needed_by_[task]) {
    if (--unmet_[next] == 0 && !out_[next]) add_ready(next);
  }
}

void TaskSchedule::leave_out(std::size_t task) {
  std::set<LeftOut, decltype([](const LeftOut& a, const LeftOut& b) { return a.task < b.task; })> found;
  for (std::queue<std::size_t> failed({task}); !failed.empty(); failed.pop()) {
    for (const std::size_t next : needed_by_[failed.front()]) {
      if (out_[next]) continue;
      out_[next] = true;
      --num_waiting_;
      found.insert({next, failed.front()});
      failed.push(next);
    }
  }
  left_out_.insert(left_out_.end(), found.begin(), found.end());
}

// Each task that begins at this time gets one group; each remaining group goes to the task that would end last.
std::vector<int> TaskSchedule::widths(const std::vector<std::size_t>& tasks) const {
  std::vector<int> widths(tasks.size(), 1);
  std::priority_queue<std::pair<double, std::size_t>> longest;
  const auto add = [&](std::size_t k) {
    const Task& task = tasks_[tasks[k]];
    if (widths[k] < task.most_groups)
      longest.emplace(chain_cost_[tasks[k]] - task.cost + task.cost / widths[k], tasks.size() - 1 - k);
  };
  for (std::size_t k = 0; k < tasks.size(); ++k) add(k);
  for (std::size_t spare = free_.size() - tasks.size(); spare > 0 && !longest.empty(); --spare) {
    const std::size_t k = tasks.size() - 1 - longest.top().second;
    longest.pop();
    ++widths[k];
    add(k);
  }
  return widths;
}

// Returns the tasks that begin now. A task whose share of the ready work is more than the remaining groups waits, if
// the tasks that begin can use these groups: on one group it would end after all others. For example two tasks of ten
// hours and of one hour over two groups take 5.5 hours in turn, but 10 hours at the same time. Less than a quarter of a
// group counts as none, because costs are guesses and a task divides with some loss.
std::vector<std::size_t> TaskSchedule::take_tasks() {
  std::vector<std::size_t> tasks;
  const double groups = static_cast<double>(free_.size()), cost = ready_cost_;
  double left = groups, usable = 0;
  while (!ready_.empty() && tasks.size() < free_.size() && num_running_ < most_at_once_) {
    const Task& next = tasks_[ready_.begin()->second];
    const double most = std::max(next.most_groups, 1);
    const double share = cost > 0 ? std::clamp(std::ceil(groups * next.cost / cost - 0.25), 1.0, most) : 1;
    if (share > left && usable >= groups) break;
    tasks.push_back(pop_ready());
    left -= share;
    usable += most;
    ++num_running_;
    --num_waiting_;
  }
  return tasks;
}

std::vector<TaskSchedule::Start> TaskSchedule::begin() {
  std::vector<Start> starts;
  if (num_leaving_ > 0) return starts;
  const std::vector<std::size_t> tasks = take_tasks();
  if (tasks.empty()) return starts;
  const std::vector<int> groups = widths(tasks);
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    Start& start = starts.emplace_back(Start{tasks[k], {}});
    while (start.groups.size() < static_cast<std::size_t>(groups[k])) {
      start.groups.push_back(*free_.begin());
      team_of_[static_cast<std::size_t>(start.groups.back())] = start.task;
      free_.erase(free_.begin());
    }
    team_size_[start.task] = start.groups.size();
  }
  return starts;
}

std::vector<PlannedStart> planned_order(const TaskNeeds& needs, const std::vector<TaskSchedule::Task>& tasks,
                                        int num_groups, int at_once) {
  std::vector<PlannedStart> order;
  double now = 0;
  if (!may_overlap(needs, num_groups, at_once)) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      order.push_back({i, num_groups, now});
      now += tasks[i].cost / num_groups;
    }
    return order;
  }
  TaskSchedule schedule(needs, tasks, num_groups, at_once);
  for (int group = 0; group < num_groups; ++group) schedule.group_is_free(group);
  std::multimap<double, TaskSchedule::Start> running;  // by their ends
  while (true) {
    for (TaskSchedule::Start& start : schedule.begin()) {
      const auto groups = static_cast<int>(start.groups.size());
      order.push_back({start.task, groups, now});
      running.emplace(now + tasks[start.task].cost / groups, std::move(start));
    }
    if (running.empty()) return order;
    now = running.begin()->first;
    const TaskSchedule::Start ended = std::move(running.begin()->second);
    running.erase(running.begin());
    schedule.task_ended(ended.task, true);
    for (const int group : ended.groups) schedule.group_is_free(group);
  }
}

}  // namespace magister
