// See task_paths.h.
#include "magister/run/task_paths.h"

#include <fnmatch.h>

#include <algorithm>
#include <climits>
#include <filesystem>

namespace magister {
namespace {

std::string whole_path(const std::string& path) {
  std::error_code error;
  std::string whole = std::filesystem::absolute(path, error).lexically_normal().string();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

// Links followed, but for the last part, which may be one itself, and for what lies behind a pattern.
std::string followed(const std::string& whole) {
  const std::filesystem::path path(whole.substr(0, whole.find_first_of("*?[")));
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::weakly_canonical(path.parent_path(), error);
  return error ? whole : (parent / path.filename()).string() + whole.substr(path.string().size());
}

}  // namespace

TaskPath::TaskPath(const std::string& folder, const std::string& path) {
  if (path.size() > PATH_MAX || path.find('/') == std::string::npos) return;
  folder_ = whole_path(folder) + "/";
  path_ = whole_path(path);
  if (!path_.starts_with(folder_)) {  // one of them may lead through a link
    folder_ = followed(folder_ + "x");
    folder_.pop_back();
    path_ = followed(path_);
  }
  const std::string_view plain = std::string_view(path_).substr(0, path_.find_first_of("*?["));
  if (plain.size() < path_.size() && (plain.starts_with(folder_) || folder_.starts_with(plain))) is_pattern_ = true;
  if (!path_.starts_with(folder_)) return;
  const std::size_t end = std::min(path_.find_first_of("./", folder_.size()), path_.size());
  name_ = path_.substr(folder_.size(), end - folder_.size());
  ending_ = path_.substr(end);
}

bool TaskPath::is_output_of(const std::string& task) const {
  if (is_pattern_ && ::fnmatch(path_.c_str(), (folder_ + task + ".h5").c_str(), FNM_PATHNAME) == 0) return true;
  return name_ == task &&
         (ending_.empty() || ending_[0] == '/' || ending_ == ".h5" || ending_ == ".json" || ending_ == ".csv");
}

}  // namespace magister
