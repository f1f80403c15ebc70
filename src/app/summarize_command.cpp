// summarize: writes the summaries of tasks again from their complete results files, on rank 0.
#include <fmt/ranges.h>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/app/experiment.h"
#include "magister/io/results/results_file.h"
#include "magister/run/run_log.h"

namespace magister {
namespace {

// The kinds of tasks that have a summary: "judge", or "judge or exam".
std::string kinds_with_summary(TaskKinds kinds) {
  std::vector<std::string> names;
  for (const TaskKind& kind : kinds) {
    if (kind.has_summary) names.emplace_back(kind.name);
  }
  return fmt::format("{}", fmt::join(names, " or "));
}

// The task with this name, or without a name all tasks that have a summary. At least one.
std::vector<std::size_t> chosen_tasks(const Experiment& experiment, TaskKinds kinds, const std::string& name) {
  std::vector<std::size_t> chosen;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    const Task& task = *experiment.tasks()[i];
    if (const TaskKind* const kind = find_kind(kinds, task.kind()); kind == nullptr || !kind->has_summary) continue;
    names.push_back(task.name());
    if (name.empty() || name == task.name()) chosen.push_back(i);
  }
  const std::string summarized = kinds_with_summary(kinds);
  MAGISTER_CHECK(!names.empty(), ExitCode::kUsage,
                 "no task of the experiment is a {} (only a {} has a summary); name another experiment", summarized,
                 summarized);
  MAGISTER_CHECK(!chosen.empty(), ExitCode::kUsage,
                 "--task {}: no {} of the experiment has this name (it has {}); {}name one of them",
                 printable(name, 60), summarized, printable(fmt::format("{}", fmt::join(names, ", ")), 200),
                 nearest_name(name, names).empty() ? "" : "did you mean " + nearest_name(name, names) + "? else ");
  return chosen;
}

}  // namespace

ExitCode summarize_command(Invocation& call) {
  const Experiment experiment =
      Experiment::load(call.world, call.line.positional("FILE.yaml"), call.line.rest("key.path=value"), call.kinds);
  return on_rank_zero(call.world, [&] {
    const Communicator alone;
    const std::vector<std::size_t> chosen = chosen_tasks(experiment, call.kinds, call.line.option("--task"));
    for (const std::size_t i : chosen) {
      const std::string path = experiment.results_path(i);
      MAGISTER_CHECK(ResultsFile::state_on_disk(path) != ResultsFile::State::kAbsent, ExitCode::kData,
                     "{}: there is no such file (a summary covers the results of a run); run the experiment first",
                     printable(path));
    }
    RunLog log(experiment.config().folder() + "/run.jsonl");
    for (const std::size_t i : chosen) {
      RunContext context{.world = alone,
                         .experiment = experiment.config(),
                         .results_path = experiment.results_path(i),
                         .identity_yaml = experiment.identity_yaml_of_task(i),
                         .stop = call.stop,
                         .log = log};
      experiment.tasks()[i]->summarize(context);
      say(context.results_path.substr(0, context.results_path.size() - 3) + ".summary.json\n");
    }
    return ExitCode::kDone;
  });
}

}  // namespace magister
