// See task_paths.h.
#include "magister/experiment/task_paths.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <string_view>

namespace magister {
namespace {

std::string whole_path(const std::string& path) {
  std::error_code error;
  std::string whole = std::filesystem::absolute(path, error).lexically_normal().string();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

// Follows links, except in the last part of the path, which may be a link itself, and in what follows a pattern.
std::string followed(const std::string& whole) {
  const std::filesystem::path path(whole.substr(0, whole.find_first_of("*?[")));
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::weakly_canonical(path.parent_path(), error);
  return error ? whole : (parent / path.filename()).string() + whole.substr(path.string().size());
}

}  // namespace

TaskPath::TaskPath(const std::string& folder, const std::string& path) {
  if (path.size() > PATH_MAX || path.find('/') == std::string::npos) return;
  take({whole_path(folder) + "/", whole_path(path)});
  if (!name_.empty()) return;
  // The folder or the path may lead through a link.
  const Places written = places_.front();
  std::string real = followed(written.folder + "x");
  real.pop_back();
  take({std::move(real), followed(written.path)});
}

void TaskPath::take(const Places& places) {
  places_.push_back(places);
  const auto& [folder, path] = places;
  const std::string_view plain = std::string_view(path).substr(0, path.find_first_of("*?["));
  if (plain.size() < path.size() && (plain.starts_with(folder) || folder.starts_with(plain))) is_pattern_ = true;
  if (!path.starts_with(folder)) return;
  const std::size_t end = std::min(path.find_first_of("./", folder.size()), path.size());
  name_ = path.substr(folder.size(), end - folder.size());
  ending_ = path.substr(end);
}

bool TaskPath::is_output_of(const std::string& task) const {
  const auto fits = [&](const Places& one) {
    return ::fnmatch(one.path.c_str(), (one.folder + task + ".h5").c_str(), FNM_PATHNAME) == 0;
  };
  if (is_pattern_ && std::any_of(places_.begin(), places_.end(), fits)) return true;
  constexpr std::array<std::string_view, 6> kEndings = {"", ".h5", ".json", ".csv", ".summary.json", ".summary.csv"};
  return name_ == task &&
         (ending_.starts_with('/') || std::find(kEndings.begin(), kEndings.end(), ending_) != kEndings.end());
}

}  // namespace magister
