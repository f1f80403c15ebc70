// Folders as Python's `datasets` saves them (save_to_disk: state.json names the files), folders in the layout of the
// Hugging Face Hub (hub_layout.h), and the Hub's cache on this machine. Nothing is ever downloaded.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "io/dataset/dataset_files.h"
#include "io/dataset/hub_layout.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/model_path.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kMaxStateBytes = 16 << 20;  // 100,000 names of files take 4 MB

json read_state(const fs::path& path) {
  const std::string text = read_whole_file(path, kMaxStateBytes, "it lists the files of a data set");
  json state = json::parse(text, nullptr, false);
  MAGISTER_CHECK(state.is_object(), ExitCode::kData,
                 "{}: is not a JSON object (it lists the files of a data set); save the data set again",
                 printable(path.string()));
  return state;
}

// True for a name in the folder that does not lead out of it.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::vector<std::string> saved_files(const fs::path& folder, const std::string& split) {
  const fs::path place = folder / "state.json";
  const json state = read_state(place);
  const std::string shown = printable(place.string());
  const auto saved = state.find("_split");
  if (!split.empty() && saved != state.end() && saved->is_string()) {
    MAGISTER_CHECK(saved->get<std::string>() == split, ExitCode::kConfig,
                   "{}: the folder holds the split {} and dataset.split is {} (other records would be read); name the "
                   "folder of that split",
                   shown, printable(saved->get<std::string>(), 80), printable(split, 80));
  }
  const auto indices = state.find("_indices_data_files");
  MAGISTER_CHECK(indices == state.end() || indices->is_null() || indices->empty(), ExitCode::kData,
                 "{}: the data set was saved with a separate order of its records (which is not read); save it again "
                 "after flatten_indices()",
                 shown);
  const auto files = state.find("_data_files");
  MAGISTER_CHECK(files != state.end() && files->is_array() && !files->empty(), ExitCode::kData,
                 "{}: has no list _data_files (it is unknown which files belong to the data set); save it again",
                 shown);
  std::vector<std::string> paths;
  for (const json& file : *files) {
    const bool named = file.is_object() && file.contains("filename") && file["filename"].is_string();
    const std::string name = named ? file["filename"].get<std::string>() : "";
    MAGISTER_CHECK(is_file_name(name), ExitCode::kData,
                   "{}: an entry of _data_files names no file of the folder ({}); save the data set again", shown,
                   printable(name, 80));
    paths.push_back((folder / name).string());
  }
  return paths;
}

// "train-00000-of-00002.parquet" -> 0 and 2, with any number of digits.
bool read_shard(const std::string& name, std::uint32_t& index, std::uint32_t& count) {
  const std::size_t of = name.find("-of-");
  if (of == std::string::npos) return false;
  std::size_t first = of;
  while (first > 0 && name[first - 1] >= '0' && name[first - 1] <= '9') --first;
  const auto number = [&](std::size_t begin, std::size_t end, std::uint32_t& value) {
    return std::from_chars(name.data() + begin, name.data() + end, value).ec == std::errc();
  };
  return number(first, of, index) && number(of + 4, name.size(), count);
}

// Requires all shards that the file names promise: the records of a missing one would be left out silently.
void check_shards(const fs::path& folder, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::uint32_t index = 0, count = 0;
    if (!read_shard(fs::path(names[i]).filename().string(), index, count)) continue;
    MAGISTER_CHECK(count == names.size() && index == i, ExitCode::kData,
                   "{}: {} is at position {} of {} files (a shard is missing, or there are two sets of them); download "
                   "the data set again, or name its files",
                   printable(folder.string()), printable(names[i], 120), i, names.size());
  }
}

// True for files that are not data: descriptions, checksums, locks, and metadata of `datasets` and the Hub.
bool is_about_data(const std::string& file) {
  constexpr std::string_view kEnds[] = {".md", ".lock", ".md5", ".sha256", ".crc", ".yaml", ".yml", ".py"};
  constexpr std::string_view kNames[] = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "config.json"};
  const std::string name = fs::path(file).filename().string();
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return name.ends_with(end); }) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Refuses a file that exists both plain and compressed, because its records would be read twice.
void check_copies(const fs::path& folder, const std::vector<std::string>& names) {
  std::map<std::string, std::string> seen;
  for (const std::string& name : names) {
    std::string stem = name;
    for (const std::string_view end : {".gz", ".zst"}) {
      if (stem.ends_with(end)) stem.erase(stem.size() - end.size());
    }
    const auto [other, is_new] = seen.emplace(stem, name);
    MAGISTER_CHECK(is_new, ExitCode::kData,
                   "{}: {} and {} are both there (their records would be read twice); move one away, or name the files",
                   printable(folder.string()), printable(other->second, 120), printable(name, 120));
  }
}

std::string ending_of(const std::string& file) {
  std::string name = fs::path(file).filename().string();
  for (const std::string_view end : {".gz", ".zst"}) {
    if (name.ends_with(end)) name.erase(name.size() - end.size());
  }
  return fs::path(name).extension().string();
}

// Requires that the files of a split are complete, all readable, and of one kind; they stay in order.
std::vector<std::string> whole_split(const fs::path& folder, std::vector<std::string> files, const std::string& split) {
  std::erase_if(files, is_about_data);
  const auto unread = std::find_if_not(files.begin(), files.end(), is_data_file);
  MAGISTER_CHECK(
      unread == files.end(), ExitCode::kData,
      "{}: {} belongs to the split {} by its name and is no file that is read (its records would be left out); "
      "convert it, move it away, or name the files",
      printable(folder.string()), unread == files.end() ? "" : printable(*unread, 120), printable(split, 80));
  const auto other = std::find_if(files.begin(), files.end(),
                                  [&](const auto& file) { return ending_of(file) != ending_of(files[0]); });
  MAGISTER_CHECK(
      other == files.end(), ExitCode::kData,
      "{}: {} and {} are of different kinds (`datasets` would read one of them alone); move one away, or name "
      "the files",
      printable(folder.string()), files.empty() ? "" : printable(files[0], 120),
      other == files.end() ? "" : printable(*other, 120));
  check_shards(folder, files);
  check_copies(folder, files);
  for (std::string& file : files) file = (folder / file).string();
  return files;
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + printable(name, 60);
  return printable(all, 400);
}

// Without configurations in README.md: files found by the names of folders and files, or all files of a folder that
// holds only data of one kind.
std::vector<std::string> unlisted_files(const fs::path& folder, const std::string& split) {
  const std::vector<std::string> all = files_below(folder.string());
  const std::string wanted = split.empty() ? "train" : split;
  NamedFiles found = files_by_name(all, wanted);
  std::erase_if(found.files, is_about_data);
  if (found.files.empty() && found.splits.empty() && wanted == "train") {
    std::vector<std::string> data = all;
    std::erase_if(data, [](const auto& file) { return is_about_data(file) || fs::path(file).extension().empty(); });
    const bool alike = !data.empty() && std::all_of(data.begin(), data.end(), [&](const std::string& file) {
      return is_data_file(file) && ending_of(file) == ending_of(data[0]) &&
             fs::path(file).parent_path() == fs::path(data[0]).parent_path();
    });
    if (alike) return whole_split(folder, data, wanted);
    if (split.empty()) return {folder.string()};
  }
  const std::vector<std::string> names = found.splits.empty() ? all : found.splits;
  MAGISTER_CHECK(
      !found.files.empty(), ExitCode::kData,
      "{}: holds no file of the split {} (the name of the file or of a folder above it would say so; there are: "
      "{}); name one of its splits with dataset.split, or the files with dataset.path",
      printable(folder.string()), printable(wanted, 80), joined_names(names));
  for (std::string& place : found.places) place = place.empty() ? "the folder itself" : place;
  MAGISTER_CHECK(found.places.size() == 1, ExitCode::kConfig,
                 "{}: holds several configurations ({}: each has files of the split {}); name one with dataset.config",
                 printable(folder.string()), joined_names(found.places), printable(wanted, 80));
  return whole_split(folder, found.files, wanted);
}

// The configuration with this name, or the default one if `name` is empty.
const HubConfig& chosen_config(const fs::path& folder, const std::vector<HubConfig>& configs, const std::string& name) {
  std::vector<std::string> names;
  std::vector<const HubConfig*> chosen;
  for (const HubConfig& config : configs) {
    names.push_back(config.name);
    const bool is_meant = configs.size() == 1 || config.name == "default" || config.is_default;
    if (name.empty() ? is_meant : config.name == name) chosen.push_back(&config);
  }
  MAGISTER_CHECK(chosen.size() == 1, ExitCode::kConfig,
                 "{}: {} of its configurations {} (its README.md has: {}); name one with dataset.config",
                 printable(folder.string()), chosen.empty() ? "none" : "several",
                 name.empty() ? "is the one that is read unless asked" : "is called " + printable(name, 80),
                 joined_names(names));
  return *chosen[0];
}

std::vector<std::string> listed_files(const fs::path& folder, const HubConfig& config, const std::string& split) {
  const fs::path place = config.folder.empty() ? folder : folder / config.folder;
  if (config.splits.empty()) return unlisted_files(place, split);
  const std::string wanted = split.empty() ? "train" : split;
  std::vector<std::string> names, files;
  const std::vector<std::string> all = files_below(place.string());
  for (const HubConfig::Files& one : config.splits) {
    names.push_back(one.split);
    if (one.split != wanted) continue;
    for (const std::string& pattern : one.patterns) {
      std::copy_if(all.begin(), all.end(), std::back_inserter(files),
                   [&](const std::string& file) { return pattern_means(pattern, file); });
    }
  }
  MAGISTER_CHECK(!files.empty(), ExitCode::kData,
                 "{}: its README.md names no file for the split {} of the configuration {}, or none that is there (the "
                 "splits are: {}); name one with dataset.split, or download the data set again",
                 printable(place.string()), printable(wanted, 80), printable(config.name, 80), joined_names(names));
  std::vector<std::string> sorted = files;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  MAGISTER_CHECK(twice == sorted.end(), ExitCode::kData,
                 "{}: its README.md names {} twice in the split {} of the configuration {} (its records would be read "
                 "twice); name the files with dataset.path",
                 printable(place.string()), twice == sorted.end() ? "" : printable(*twice, 120), printable(wanted, 80),
                 printable(config.name, 80));
  return whole_split(place, std::move(files), wanted);
}

// The cache's own path is taken literally; the rest after it is a pattern.
std::string joined(const std::string& folder, const std::string& rest) {
  if (rest.find_first_of("*?[") == std::string::npos) return folder + rest;
  std::string pattern;
  for (const char c : folder) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + rest;
}

}  // namespace

std::vector<std::string> files_of_folder(const std::string& folder, const std::string& config,
                                         const std::string& split) {
  const fs::path place(folder);
  std::error_code error;
  if (config.empty() && fs::is_regular_file(place / "state.json", error)) return saved_files(place, split);
  if (config.empty() && fs::is_regular_file(place / "dataset_dict.json", error)) {
    const std::string wanted = split.empty() ? "train" : split;
    const json dict = read_state(place / "dataset_dict.json");
    const auto splits = dict.find("splits");
    MAGISTER_CHECK(is_file_name(wanted) && splits != dict.end() && splits->is_array() &&
                       std::find(splits->begin(), splits->end(), json(wanted)) != splits->end(),
                   ExitCode::kData, "{}: the data set has no split {} (it has {}); name one with dataset.split",
                   printable(folder), printable(wanted, 80), splits == dict.end() ? "none" : printable(splits->dump()));
    return saved_files(place / wanted, "");
  }
  std::vector<HubConfig> configs;
  if (fs::exists(place / "README.md", error)) configs = configs_of_readme((place / "README.md").string());
  if (!configs.empty()) return listed_files(place, chosen_config(place, configs, config), split);
  if (config.empty()) return unlisted_files(place, split);
  const bool stays = config.front() != '/' && ("/" + config + "/").find("/../") == std::string::npos &&
                     config.find('\0') == std::string::npos;
  std::vector<std::string> folders;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) folders.push_back(at->path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  MAGISTER_CHECK(stays && fs::is_directory(place / config, error), ExitCode::kConfig,
                 "{}: has no configuration {} (a folder of it of this name; it has: {}); name one with dataset.config",
                 printable(folder), printable(config, 80), joined_names(folders));
  return files_of_folder((place / config).string(), "", split);
}

std::string find_dataset(const std::string& path) {
  std::error_code error;
  const std::size_t slash = path.find('/');
  const std::size_t end = slash == std::string::npos ? slash : path.find('/', slash + 1);
  const std::string name = path.substr(0, end);
  if (!is_hub_name(name) || fs::exists(path, error) || fs::exists(name, error)) return path;
  const std::string snapshot = hub_snapshot("datasets", name);
  if (!snapshot.empty()) return end == std::string::npos ? snapshot : joined(snapshot, path.substr(end));
  MAGISTER_CHECK(end != std::string::npos || fs::exists(name.substr(0, slash), error) || is_data_file(name),
                 ExitCode::kInputOutput,
                 "{}: cannot be opened (the path does not exist; the data set cannot be read){}", printable(path),
                 hub_hint("--repo-type dataset " + name));
  return path;
}

}  // namespace magister
