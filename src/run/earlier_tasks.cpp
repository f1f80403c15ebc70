// See earlier_tasks.h.
#include "magister/run/earlier_tasks.h"

#include <filesystem>

#include "magister/core/error.h"
#include "magister/io/results/tools.h"
#include "magister/run/model_hash.h"
#include "magister/run/task.h"

namespace magister {

namespace fs = std::filesystem;

std::string results_path_of(const RunContext& context, const std::string& task) {
  return (fs::path(context.results_path).parent_path() / (task + ".h5")).string();
}

const Task* require_results(const RunContext& context, const std::string& by, const std::string& key,
                            const std::string& task, const std::string& kind) {
  std::vector<std::string> names;
  for (const Task* const earlier : context.earlier_tasks) {
    if (earlier->kind() == kind) names.push_back(earlier->name());
    if (earlier->name() != task) continue;
    MAGISTER_CHECK(
        earlier->kind() == kind, ExitCode::kConfig,
        "tasks: {}: {} names {}, which is a {} task (the results of a {} task are needed); name one of those", by, key,
        printable(task), earlier->kind(), kind);
    return earlier;
  }
  const std::string path = results_path_of(context, task);
  if (fs::exists(path)) return nullptr;
  const std::string nearest = nearest_name(task, names);
  fail(ExitCode::kConfig,
       "tasks: {}: {} names {}, but no {} task of that name comes before this one, and {} does not exist (its results "
       "are needed); {}",
       by, key, printable(task), kind, printable(path),
       nearest.empty() ? fmt::format("run that {} task first, as an earlier task of the experiment or on its own", kind)
                       : fmt::format("did you mean {}?", printable(nearest)));
}

void add_results_digests(const RunContext& context, const std::string& of, const std::string& suffix,
                         const std::string& task, Attributes& attributes) {
  const Communicator& world = context.world;
  const std::string path = results_path_of(context, task);
  std::string file = world.rank() == 0 ? file_sha256(path, context.stop_poll()) : "";
  world.broadcast(file, 0);
  leave_if_stopped(world, context.stop);
  std::string run = world.rank() == 0 ? run_sha256(path) : "";
  world.broadcast(run, 0);
  attributes.emplace_back(of + "_sha256" + suffix, file);
  attributes.emplace_back(of + "_run_sha256" + suffix, run);
}

ModelSection model_by_now(const ModelSection& section, const RunContext& context, bool& stands_in) {
  stands_in = !section.task.empty() && !is_made(context, section.path);
  if (stands_in) return section.stand_in();
  MAGISTER_CHECK(section.task.empty() || fs::exists(section.path), ExitCode::kInputOutput,
                 "{}: the model of task {} is not there, and its results are complete (somebody removed or renamed "
                 "the folder); put it back, or train again with --fresh",
                 printable(section.path, 4096), section.task);
  return section;
}

bool is_made(const RunContext& context, const std::string& path) {
  using Earlier = RunContext::Earlier;
  return context.earlier == Earlier::kMade || (context.earlier == Earlier::kOnDisk && fs::exists(path));
}

}  // namespace magister
