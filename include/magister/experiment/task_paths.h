// Which task of an experiment writes what a path names, however it is written: NAME.h5 of the experiment's folder, what stands beside it, or a file
// of the folder NAME. No task's name has a dot or slash. On disk only links are looked up, where the path as it is written leads elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace magister {

class TaskPath {
 public:
  // folder: the experiment's.
  TaskPath(const std::string& folder, const std::string& path);

  // The task below whose name the path stands, among it what is kept of earlier runs (NAME.h5.previous-1, NAME.checkpoints); "" where the path
  // leads elsewhere or is a pattern.
  const std::string& name() const { return name_; }
  // Whether a pattern (* ? [) may name files of the folder.
  bool is_pattern() const { return is_pattern_; }
  // Whether this task's results stand there: NAME.h5, its summaries NAME.json and NAME.csv, the folder NAME or a file of it; or a pattern that
  // NAME.h5 fits.
  bool is_output_of(const std::string& task) const;
  // Whether it is the folder of that task itself: of a training, its model.
  bool is_folder_of(const std::string& task) const { return name_ == task && ending_.empty(); }

 private:
  struct Places {
    std::string folder, path;  // whole; the folder ends with a slash
  };
  void take(const Places& places);

  std::vector<Places> places_;  // as written; behind links
  std::string name_, ending_;   // ending_: what follows the name
  bool is_pattern_ = false;
};

}  // namespace magister
