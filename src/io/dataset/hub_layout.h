// A data set's folder in the layout of the Hugging Face Hub: which files belong to a split of a configuration.
// README.md's list `configs` decides; without it the names of folders and files do. Source: the Hub's documentation
// "Manual Configuration" and "Structure your repository"; the files and their order are those of load_dataset(folder)
// in `datasets`.
#pragma once

#include <string>
#include <vector>

namespace magister {

// Files of the folder: "data/train-00000-of-00002.parquet", with '/' between the parts. Hidden files and folders (first
// character '.') and names that begin with "__" are not listed; links are followed. Sorted as bytes. Throws
// Error(kData) for more than 1,000,000 files or 16 levels, Error(kInputOutput) for a folder that cannot be read. Local.
std::vector<std::string> files_below(const std::string& folder);

// A configuration in README.md: the file patterns of each split; without splits: files are found by their names.
struct HubConfig {
  struct Files {
    std::string split;
    std::vector<std::string> patterns;
  };
  std::string name;
  std::string folder;  // inside the data set; empty: the data set's own folder
  bool is_default = false;
  std::vector<Files> splits;
};
// The configurations in the head of README.md, in its order; empty if there is no `configs`. Throws Error(kData) for an
// entry that would be read differently from what it says. Local.
std::vector<HubConfig> configs_of_readme(const std::string& path);

// True if the pattern (`*`, `?`, `[a-z]` within a part, `**` for any parts) matches this file. Local.
bool pattern_means(const std::string& pattern, const std::string& file);

// The files of a split by their names, in order. Files of unknown formats are included, so that the caller can refuse
// them.
struct NamedFiles {
  std::vector<std::string> files;
  // The path before the part that names the split, "" for the folder itself. Several places mean several
  // configurations.
  std::vector<std::string> places;
  std::vector<std::string> splits;  // splits that were found
};
NamedFiles files_by_name(const std::vector<std::string>& files, const std::string& split);

}  // namespace magister
