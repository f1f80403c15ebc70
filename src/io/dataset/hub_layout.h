// A data set's folder as the Hugging Face hub has it: which files are a split of a configuration. What README.md says of its
// configurations (`configs`) decides; without them the names of folders and files do. Source: the hub's documentation "Manual
// Configuration" and "Structure your repository"; the files and their order are those of load_dataset(folder) in `datasets`.
#pragma once

#include <string>
#include <vector>

namespace magister {

// A file of the folder: "data/train-00000-of-00002.parquet", '/' between its parts. Hidden files and folders (of a first '.') and those
// of a first "__" are not listed; links are followed. Sorted as bytes. Throws Error(kData) for more than 1,000,000 files or 16 levels,
// Error(kInputOutput) for a folder that cannot be read. Local.
std::vector<std::string> files_below(const std::string& folder);

// A configuration that README.md names: patterns of the files of each split, none: found by their names.
struct HubConfig {
  struct Files {
    std::string split;
    std::vector<std::string> patterns;
  };
  std::string name;
  std::string folder;  // within the data set; empty: its own
  bool is_default = false;
  std::vector<Files> splits;
};
// Those of the file's head, in its order; none where it has no `configs`. Throws Error(kData) for what would be read in another way
// than its lines say. Local.
std::vector<HubConfig> configs_of_readme(const std::string& path);

// Whether the pattern (`*`, `?`, `[a-z]` within a part, `**` for any parts) means this file. Local.
bool pattern_means(const std::string& pattern, const std::string& file);

// The files of a split by their names, in order; what is no name of data is not left out, the caller refuses it.
struct NamedFiles {
  std::vector<std::string> files;
  // What stands before the part that names the split, "" for the folder itself: more than one are several configurations.
  std::vector<std::string> places;
  std::vector<std::string> splits;  // the splits that there are
};
NamedFiles files_by_name(const std::vector<std::string>& files, const std::string& split);

}  // namespace magister
