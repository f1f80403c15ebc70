// The results and the models that a task takes from earlier tasks. Local unless a comment says otherwise.
#pragma once

#include <optional>
#include <string>

#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/run/run_context.h"

namespace magister {

// Returns the results file that a path names. If the path is the folder of a run, this is the one complete results file
// in it of a task of this kind. place: file:line:column and the key, for messages. Throws Error(kConfig) if such a
// folder holds none, or several. Local.
std::string results_at(const std::string& path, const std::string& kind, const std::string& place);

// Returns the results file that a key names: <folder>/<name>.h5 for a task of this experiment, results_at() for a path.
// `kind` and `place` are those of results_at().
std::string results_path_of(const RunContext& context, const std::string& named, const std::string& kind,
                            const std::string& place);

// Returns the name of results: a task's name, or the last part of a path without ".h5". Two paths may have the same
// name.
std::string results_name(const std::string& named);

// Returns the earlier task of this name and kind, or null if the experiment has none but results of that name, or at
// that path, exist on disk. Otherwise throws Error(kConfig), which names the nearest task. place: file:line:column and
// the key that names it.
const Task* require_results(const RunContext& context, const std::string& place, const std::string& named,
                            const std::string& kind);

// Returns the text of this name that an earlier task announces (TaskTraits::announced); empty: there is none.
std::string announced_text(const Task& task, const std::string& name);

// Returns the records of an earlier task that reads the files of `own` with another limit or slice. Returns nothing if
// that task reads the same records or other files, or if some of its files do not exist yet. Collective over
// context.world.
std::optional<IndexRange> other_records_of(const RunContext& context, const Task& earlier, const DatasetConfig& own);

// Appends <of>_sha256<suffix>, the digest of the complete file at `path`, and <of>_run_sha256<suffix>, the digest of
// the run that made it. Each slice of an array job has a file of its own; merge knows from the run's digest that they
// belong together. Collective over context.world.
void add_results_digests(const RunContext& context, const std::string& of, const std::string& suffix,
                         const std::string& path, Attributes& attributes);

// Returns the model that can be opened now. If an earlier task makes it and has not run, this is the model from which
// that task starts, and is_placeholder is set to true. Throws Error(kInputOutput) if the folder of a trained model is
// gone.
ModelSection available_model(const ModelSection& section, const RunContext& context, bool& is_placeholder);

// True if the file or folder that an earlier task makes at this path can be opened now.
bool is_made(const RunContext& context, const std::string& path);

}  // namespace magister
