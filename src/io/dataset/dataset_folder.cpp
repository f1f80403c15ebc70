// Folders as Python's `datasets` saves them (save_to_disk: state.json names the files) and as the Hugging Face hub has them
// (data/train-00000-of-00002.parquet), and the hub's cache on this machine. Nothing is ever downloaded.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/dataset/dataset_files.h"
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

// A name inside the folder, not a way out of it.
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
  MAGISTER_CHECK(
      indices == state.end() || indices->is_null() || indices->empty(), ExitCode::kData,
      "{}: the data set was saved with an order of its own beside its files (which is not read); save it again "
      "after flatten_indices()",
      shown);
  const auto files = state.find("_data_files");
  MAGISTER_CHECK(files != state.end() && files->is_array() && !files->empty(), ExitCode::kData,
                 "{}: has no list _data_files (which files belong to the data set cannot be told); save it again",
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

std::vector<std::string> names_in(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
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

// Shards that the hub's names promise and that are not there would be records left out without a word.
void check_shards(const fs::path& folder, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::uint32_t index = 0, count = 0;
    if (!read_shard(names[i], index, count)) continue;
    MAGISTER_CHECK(
        count == names.size() && index == i, ExitCode::kData,
        "{}: {} stands at place {} of {} files (a shard is missing, or there are two sets of them); download the "
        "data set again, or name its files",
        printable(folder.string()), printable(names[i], 120), i, names.size());
  }
}

// What stands beside data: descriptions, checksums and locks.
bool is_about_data(const std::string& name) {
  constexpr std::string_view kEnds[] = {".md", ".lock", ".md5", ".sha256", ".crc", ".yaml", ".yml", ".py"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return name.ends_with(end); });
}

// The same records, plain and compressed, would be read twice.
void check_copies(const fs::path& folder, const std::vector<std::string>& names) {
  std::map<std::string, std::string> seen;
  for (const std::string& name : names) {
    std::string stem = name;
    for (const std::string_view end : {".gz", ".zst"}) {
      if (stem.ends_with(end)) stem.erase(stem.size() - end.size());
    }
    const auto [other, is_new] = seen.emplace(stem, name);
    MAGISTER_CHECK(is_new, ExitCode::kData,
                   "{}: {} and {} stand beside each other (their records would be read twice); move one away, or name "
                   "the files",
                   printable(folder.string()), printable(other->second, 120), printable(name, 120));
  }
}

// Files of a split: "train.jsonl", "train-00000-of-00002.parquet", "train_part1.csv.gz".
std::vector<std::string> split_files(const fs::path& folder, const std::string& split) {
  std::vector<std::string> found, others;
  std::error_code error;
  for (const std::string& name : names_in(folder)) {
    const bool fits = name.starts_with(split) && name.size() > split.size() &&
                      std::string_view("-_.").find(name[split.size()]) != std::string_view::npos;
    if (!fits || fs::is_directory(folder / name, error)) continue;
    (is_data_file(name) ? found : others).push_back(name);
  }
  std::erase_if(others, is_about_data);
  MAGISTER_CHECK(
      found.empty() || others.empty(), ExitCode::kData,
      "{}: {} belongs to the split {} by its name and is no file that is read (its records would be left out); "
      "convert it, move it away, or name the files",
      printable(folder.string()), others.empty() ? "" : printable(others.front(), 120), printable(split, 80));
  check_shards(folder, found);
  check_copies(folder, found);
  for (std::string& name : found) name = (folder / name).string();
  return found;
}

// The cache's own path means itself, whatever stands behind it is a pattern.
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

std::vector<std::string> files_of_folder(const std::string& folder, const std::string& split) {
  const fs::path place(folder);
  std::error_code error;
  if (fs::is_regular_file(place / "state.json", error)) return saved_files(place, split);
  const std::string wanted = split.empty() ? "train" : split;
  if (fs::is_regular_file(place / "dataset_dict.json", error)) {
    const json dict = read_state(place / "dataset_dict.json");
    const auto splits = dict.find("splits");
    MAGISTER_CHECK(is_file_name(wanted) && splits != dict.end() && splits->is_array() &&
                       std::find(splits->begin(), splits->end(), json(wanted)) != splits->end(),
                   ExitCode::kData, "{}: the data set has no split {} (it has {}); name one with dataset.split",
                   printable(folder), printable(wanted, 80), splits == dict.end() ? "none" : printable(splits->dump()));
    return saved_files(place / wanted, "");
  }
  for (const fs::path& at : {place / "data", place}) {
    if (std::vector<std::string> files = split_files(at, wanted); !files.empty()) return files;
  }
  if (split.empty()) return {folder};
  std::string names;
  for (const std::string& name : names_in(place)) names += (names.empty() ? "" : ", ") + printable(name, 60);
  fail(ExitCode::kData,
       "{}: holds no file of the split {} (its name would begin with it, here or in data/; there are: {}); "
       "name the files, or the folder that holds them",
       printable(folder), printable(wanted, 80), printable(names, 400));
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
                 ExitCode::kInputOutput, "{}: cannot be opened (nothing stands there; the data set cannot be read){}",
                 printable(path), hub_hint("--repo-type dataset " + name));
  return path;
}

}  // namespace magister
