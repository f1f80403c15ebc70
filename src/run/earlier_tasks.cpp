// See earlier_tasks.h.
#include "magister/run/earlier_tasks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <variant>

#include "magister/core/error.h"
#include "magister/experiment/task_paths.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/tools.h"
#include "magister/run/task.h"
#include "magister/runtime/model_hash.h"

namespace magister {

namespace fs = std::filesystem;

namespace {

bool is_results_of(const std::string& file, const std::string& kind) {
  try {
    const ResultsReader results(file);
    return results.complete() && results.text("format") == "magister." + kind;
  } catch (const Error&) {  // from another program, or damaged: an error if a config names the file itself
    return false;
  }
}

// True if the paths lead to the same places, whatever their spelling.
bool are_same_paths(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), [](const auto& one, const auto& other) {
    std::error_code failed;
    const fs::path whole = fs::weakly_canonical(one, failed), also = fs::weakly_canonical(other, failed);
    return one == other || (!failed && whole == also);
  });
}

}  // namespace

std::string results_at(const std::string& path, const std::string& kind, const std::string& place) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string file = entry.path().string();
    if (file.ends_with(".h5") && entry.is_regular_file(error) && is_results_of(file, kind)) found.push_back(file);
  }
  std::sort(found.begin(), found.end());
  MAGISTER_CHECK(!found.empty(), ExitCode::kConfig,
                 "{} names the folder {}, which holds no complete results of a {} task (they are needed); finish that "
                 "run first, or name a results file",
                 place, printable(path, 4096), kind);
  MAGISTER_CHECK(found.size() == 1, ExitCode::kConfig,
                 "{} names the folder {}, which holds results of several {} tasks (it is not clear which are meant); "
                 "name one of {}",
                 place, printable(path, 4096), kind, printable(fmt::format("{}", fmt::join(found, ", ")), 4096));
  return found.front();
}

std::string results_path_of(const RunContext& context, const std::string& named, const std::string& kind,
                            const std::string& place) {
  if (!is_plain_name(named)) return results_at(named, kind, place);
  return (fs::path(context.results_path).parent_path() / (named + ".h5")).string();
}

std::string results_name(const std::string& named) {
  if (is_plain_name(named)) return named;
  fs::path path = fs::path(named).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return (path.extension() == ".h5" ? path.stem() : path.filename()).string();
}

std::string announced_text(const Task& task, const std::string& name) {
  for (const auto& [announced, value] : task.traits().announced)
    if (const auto* const text = std::get_if<std::string>(&value); announced == name && text != nullptr) return *text;
  return "";
}

namespace {

// Throws Error(kConfig) unless the path leads to complete results of another run.
void require_results_at(const std::string& place, const std::string& path, const std::string& kind) {
  const std::string file = results_at(path, kind, place);
  MAGISTER_CHECK(fs::exists(file) || !fs::exists(file + ".partial"), ExitCode::kConfig,
                 "{} names {}, which is not complete (its results are needed); finish the run that writes it first",
                 place, printable(path, 4096));
  MAGISTER_CHECK(fs::exists(file), ExitCode::kConfig,
                 "{} names {}, which does not exist (its results are needed); name a {} task of this experiment, the "
                 "results file of another run, or that run's folder",
                 place, printable(path, 4096), kind);
  MAGISTER_CHECK(is_results_of(file, kind), ExitCode::kConfig,
                 "{} names {}, which holds no complete results of a {} task (they are needed); name the file of one",
                 place, printable(path, 4096), kind);
}

// The path of another run's folder next to this experiment's own; empty: no run has this name.
std::string run_called(const RunContext& context, const std::string& name) {
  const fs::path own = fs::path(context.results_path).parent_path();
  const fs::path run = (own.parent_path().empty() ? fs::path(".") : own.parent_path()) / name;
  std::error_code error;
  return own.filename() != name && fs::exists(run / "run.jsonl", error) ? run.string() : "";
}

}  // namespace

const Task* require_results(const RunContext& context, const std::string& place, const std::string& named,
                            const std::string& kind) {
  if (!is_plain_name(named)) {
    require_results_at(place, named, kind);
    return nullptr;
  }
  std::vector<std::string> names;
  for (const Task* const earlier : context.earlier_tasks) {
    if (earlier->kind() == kind) names.push_back(earlier->name());
    if (earlier->name() != named) continue;
    MAGISTER_CHECK(earlier->kind() == kind, ExitCode::kConfig,
                   "{} names {}, which is a {} task (the results of a {} task are needed); name one of those", place,
                   printable(named), earlier->kind(), kind);
    return earlier;
  }
  const std::string path = results_path_of(context, named, kind, place);
  if (fs::exists(path)) return nullptr;
  const std::string nearest = nearest_name(named, names);
  const std::string run = run_called(context, named);
  MAGISTER_CHECK(run.empty(), ExitCode::kConfig,
                 "{} names {}, which is the name of another run, and no {} task of this experiment (a run is named by "
                 "its path); write {}",
                 place, printable(named), kind, printable(run, 4096));
  fail(ExitCode::kConfig,
       "{} names {}, but no {} task of that name comes before this one, and {} does not exist (its results "
       "are needed); {}",
       place, printable(named), kind, printable(path),
       nearest.empty() ? fmt::format("run that {} task first, as an earlier task of the experiment or on its own, or "
                                     "name the results file of another run by its path",
                                     kind)
                       : fmt::format("did you mean {}?", printable(nearest)));
}

std::optional<IndexRange> other_records_of(const RunContext& context, const Task& earlier, const DatasetConfig& own) {
  const TaskData data = earlier.data(context);
  const DatasetConfig& theirs = data.config;
  const bool same_files = are_same_paths(theirs.paths, own.paths) && theirs.config == own.config &&
                          theirs.split == own.split && !theirs.mix && !own.mix && !data.is_placeholder;
  const bool same_records =
      theirs.limit == own.limit && theirs.slice_index == own.slice_index && theirs.slice_count == own.slice_count;
  if (!same_files || same_records) return std::nullopt;
  return Dataset::open(context.world, theirs, context.stop_poll()).records();
}

void add_results_digests(const RunContext& context, const std::string& of, const std::string& suffix,
                         const std::string& path, Attributes& attributes) {
  const Communicator& world = context.world;
  std::string file = world.rank() == 0 ? file_sha256(path, context.stop_poll()) : "";
  world.broadcast(file, 0);
  leave_if_stopped(world, context.stop);
  std::string run = world.rank() == 0 ? run_sha256(path) : "";
  world.broadcast(run, 0);
  attributes.emplace_back(of + "_sha256" + suffix, file);
  attributes.emplace_back(of + "_run_sha256" + suffix, run);
}

ModelSection available_model(const ModelSection& section, const RunContext& context, bool& is_placeholder) {
  const bool no_model = !section.task.empty() && !is_made(context, section.path);
  const bool no_adapter = !section.adapter_task.empty() && !is_made(context, section.adapter);
  const bool no_config = !section.config_task.empty() && !is_made(context, section.path);
  const bool no_tokenizer = !section.tokenizer_task.empty() && !is_made(context, section.random->tokenizer);
  is_placeholder = no_model || no_adapter || no_config || no_tokenizer;
  if (is_placeholder) return section.placeholder();
  MAGISTER_CHECK(section.task.empty() || fs::exists(section.path), ExitCode::kInputOutput,
                 "{}: the model of task {} is missing, although its results are complete (the folder was removed or "
                 "renamed); put it back, or train again with --fresh",
                 printable(section.path, 4096), section.task);
  return section;
}

// The placeholder has as many records as the task that writes them reads, or fewer if the data set limits them. The
// real file may hold any other number.
TaskData available_data(const DatasetConfig& dataset, const RunContext& context) {
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
