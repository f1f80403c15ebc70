// See earlier_tasks.h.
#include "magister/run/earlier_tasks.h"

#include <algorithm>
#include <filesystem>
#include <variant>

#include "magister/core/error.h"
#include "magister/io/results/tools.h"
#include "magister/run/model_hash.h"
#include "magister/run/task.h"
#include "magister/run/task_paths.h"

namespace magister {

namespace fs = std::filesystem;

std::string results_path_of(const RunContext& context, const std::string& task) {
  return (fs::path(context.results_path).parent_path() / (task + ".h5")).string();
}

std::string announced_text(const Task& task, const std::string& name) {
  for (const auto& [announced, value] : task.announced())
    if (const auto* const text = std::get_if<std::string>(&value); announced == name && text != nullptr) return *text;
  return "";
}

const Task* require_results(const RunContext& context, const std::string& place, const std::string& task,
                            const std::string& kind) {
  std::vector<std::string> names;
  for (const Task* const earlier : context.earlier_tasks) {
    if (earlier->kind() == kind) names.push_back(earlier->name());
    if (earlier->name() != task) continue;
    MAGISTER_CHECK(earlier->kind() == kind, ExitCode::kConfig,
                   "{} names {}, which is a {} task (the results of a {} task are needed); name one of those", place,
                   printable(task), earlier->kind(), kind);
    return earlier;
  }
  const std::string path = results_path_of(context, task);
  if (fs::exists(path)) return nullptr;
  const std::string nearest = nearest_name(task, names);
  fail(ExitCode::kConfig,
       "{} names {}, but no {} task of that name comes before this one, and {} does not exist (its results "
       "are needed); {}",
       place, printable(task), kind, printable(path),
       nearest.empty() ? fmt::format("run that {} task first, as an earlier task of the experiment or on its own", kind)
                       : fmt::format("did you mean {}?", printable(nearest)));
}

std::optional<IndexRange> other_records_of(const RunContext& context, const Task& earlier, const DatasetConfig& own) {
  const TaskData data = earlier.data(context);
  const DatasetConfig& theirs = data.config;
  const bool same_files = theirs.paths == own.paths && theirs.config == own.config && theirs.split == own.split &&
                          !theirs.mix && !own.mix && !data.stands_in;
  const bool same_records =
      theirs.limit == own.limit && theirs.slice_index == own.slice_index && theirs.slice_count == own.slice_count;
  if (!same_files || same_records) return std::nullopt;
  return Dataset::open(context.world, theirs, context.stop_poll()).records();
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
  const bool no_model = !section.task.empty() && !is_made(context, section.path);
  const bool no_adapter = !section.adapter_task.empty() && !is_made(context, section.adapter);
  const bool no_config = !section.config_task.empty() && !is_made(context, section.path);
  const bool no_tokenizer = !section.tokenizer_task.empty() && !is_made(context, section.random->tokenizer);
  stands_in = no_model || no_adapter || no_config || no_tokenizer;
  if (stands_in) return section.stand_in();
  MAGISTER_CHECK(section.task.empty() || fs::exists(section.path), ExitCode::kInputOutput,
                 "{}: the model of task {} is not there, and its results are complete (somebody removed or renamed "
                 "the folder); put it back, or train again with --fresh",
                 printable(section.path, 4096), section.task);
  return section;
}

// As many as the task that writes them reads, or fewer where the data set says so; a file may hold any other number.
TaskData data_by_now(const DatasetConfig& dataset, const RunContext& context) {
  for (const std::string& path : dataset.paths) {
    if (is_made(context, path)) continue;
    const TaskPath at(context.experiment.folder(), path);
    if (at.name().empty() && !at.is_pattern()) continue;
    for (const Task* const earlier : context.earlier_tasks) {
      if (!at.is_output_of(earlier->name())) continue;
      DatasetConfig records = earlier->data(context).config;
      if (dataset.limit) records.limit = std::min(*dataset.limit, records.limit.value_or(*dataset.limit));
      return {std::move(records), true};
    }
  }
  return {dataset};
}

bool is_made(const RunContext& context, const std::string& path) {
  using Earlier = RunContext::Earlier;
  return context.earlier == Earlier::kMade || (context.earlier == Earlier::kOnDisk && fs::exists(path));
}

}  // namespace magister
