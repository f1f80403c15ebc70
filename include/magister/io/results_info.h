// What a results file holds, for people and for programs: the command `info`. Works on complete and on partial files,
// also while a run writes them; reads metadata, flags and offsets, never the rows.
#pragma once

#include <string>

namespace magister {

// The file that `path` means: itself, or path + ".partial" when only that stands there. Local.
std::string existing_results_path(const std::string& path);

// Text of several lines: state, progress, identity, one line a dataset (type, shape, bytes, units, comment). Throws
// Error(kData) for what is no results file. Local.
std::string results_info_text(const std::string& path);
// One JSON object of the same facts: path, state ("complete" | "partial"), file_bytes, samples, tokens, units, each with
// the committed part (units_done, samples_done, tokens_done), attributes by name, datasets in the order of creation. Local.
std::string results_info_json(const std::string& path);

}  // namespace magister
