// summarize: summaries of judge tasks made again from their complete results files, on rank 0.
#include <fmt/ranges.h>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/app/experiment.h"
#include "magister/run/run_log.h"

namespace magister {
namespace {

// The tasks that are meant: the one of that name, else all judges. At least one.
std::vector<std::size_t> chosen_tasks(const Experiment& experiment, const std::string& name) {
  std::vector<std::size_t> chosen;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    const Task& task = *experiment.tasks()[i];
    if (task.kind() != "judge") continue;
    names.push_back(task.name());
    if (name.empty() || name == task.name()) chosen.push_back(i);
  }
  MAGISTER_CHECK(!names.empty(), ExitCode::kUsage,
                 "no task of the experiment is a judge (only a judge has a summary); name another experiment");
  MAGISTER_CHECK(!chosen.empty(), ExitCode::kUsage,
                 "--task {}: no judge of the experiment has this name (it has {}); {}name one of them",
                 printable(name, 60), printable(fmt::format("{}", fmt::join(names, ", ")), 200),
                 nearest_name(name, names).empty() ? "" : "did you mean " + nearest_name(name, names) + "? else ");
  return chosen;
}

}  // namespace

ExitCode summarize_command(Invocation& call) {
  const Experiment experiment =
      Experiment::load(call.world, call.line.positional("FILE.yaml"), call.line.rest("key.path=value"), call.kinds);
  return on_rank_zero(call.world, [&] {
    const Communicator alone;
    RunLog log(experiment.config().folder() + "/run.jsonl");
    for (const std::size_t i : chosen_tasks(experiment, call.line.option("--task"))) {
      RunContext context{.world = alone,
                         .experiment = experiment.config(),
                         .results_path = experiment.results_path(i),
                         .experiment_yaml = experiment.resolved_yaml_of_task(i),
                         .stop = call.stop,
                         .log = log};
      experiment.tasks()[i]->summarize(context);
      say(context.results_path.substr(0, context.results_path.size() - 3) + ".summary.json\n");
    }
    return ExitCode::kDone;
  });
}

}  // namespace magister
