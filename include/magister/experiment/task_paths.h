// TaskPath tells which task of an experiment writes a path, however the path is written: NAME.h5 in the experiment's
// folder, a file with that name and another ending, or a file in the folder NAME. No task's name contains a dot or a
// slash. The disk is read only to follow links, if the path as written leads out of the folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace magister {

class TaskPath {
 public:
  // folder: the experiment's folder.
  TaskPath(const std::string& folder, const std::string& path);

  // The task to whose name the path belongs, including what is kept of earlier runs (NAME.h5.previous-1,
  // NAME.checkpoints); "" if the path leads out of the folder or is a pattern.
  const std::string& name() const { return name_; }
  // True if the path is a pattern (* ? [) that may match files of the folder.
  bool is_pattern() const { return is_pattern_; }
  // True if the path names this task's results: NAME.h5, its summaries NAME.json and NAME.csv, the folder NAME or a
  // file in it; or if it is a pattern that NAME.h5 matches.
  bool is_output_of(const std::string& task) const;
  // True if the path is that task's folder itself, which for a training is its model.
  bool is_folder_of(const std::string& task) const { return name_ == task && ending_.empty(); }

 private:
  struct Places {
    std::string folder, path;  // absolute paths; folder ends with a slash
  };
  void take(const Places& places);

  std::vector<Places> places_;  // as written; then with links followed
  std::string name_, ending_;   // ending_: the part after the name
  bool is_pattern_ = false;
};

}  // namespace magister
