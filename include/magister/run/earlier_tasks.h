// What a task takes from tasks before it: their results, or the model that one of them has trained. Local.
#pragma once

#include <optional>
#include <string>

#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/run/run_context.h"

namespace magister {

// The results file that a path names: itself, or of a run's folder the one complete file in it of a task of this kind. place: file:line:column and
// the key, for messages. Throws Error(kConfig) where such a folder holds none, or several. Local.
std::string results_at(const std::string& path, const std::string& kind, const std::string& place);

// The results file that a key names: <folder>/<name>.h5 for a task of this experiment, results_at() for a path. `kind` and `place` as there.
std::string results_path_of(const RunContext& context, const std::string& named, const std::string& kind,
                            const std::string& place);

// What results are called by: a task's name, or of a path the name of its last part. Two paths may have one name.
std::string results_name(const std::string& named);

// The earlier task of this name and kind; null: there is none in the experiment, and results of that name, or at that path, stand on disk. Else
// Error(kConfig) that names the nearest. place: file:line:column and the key that names it.
const Task* require_results(const RunContext& context, const std::string& place, const std::string& named,
                            const std::string& kind);

// The text of this name among what an earlier task announces; empty: there is none.
std::string announced_text(const Task& task, const std::string& name);

// The records of an earlier task that reads the files of `own` with another limit or slice; nothing where it reads the same records, or other files,
// or some that are not there yet. Collective over context.world.
std::optional<IndexRange> other_records_of(const RunContext& context, const Task& earlier, const DatasetConfig& own);

// Appends <of>_sha256<suffix>, of the complete file at `path`, and <of>_run_sha256<suffix>, of the run that made it: each slice of an array job has a
// file of its own, and merge tells by the run that they belong together. Collective over context.world.
void add_results_digests(const RunContext& context, const std::string& of, const std::string& suffix,
                         const std::string& path, Attributes& attributes);

// The model as it can be opened now: itself, or, where an earlier task makes it and has not run, what that task starts from (is_placeholder is
// then true). Throws Error(kInputOutput) for a trained model whose folder is gone.
ModelSection available_model(const ModelSection& section, const RunContext& context, bool& is_placeholder);

// Whether what an earlier task makes at this path can be opened now.
bool is_made(const RunContext& context, const std::string& path);

}  // namespace magister
