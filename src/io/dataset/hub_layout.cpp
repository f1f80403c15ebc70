// Matches names as load_dataset(folder) of Hugging Face's `datasets` does: first shards in data/, then folders with a
// split's name, then files with it.
#include "io/dataset/hub_layout.h"

#include <dirent.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kMostFiles = 1'000'000;
constexpr int kMostLevels = 16;

void list_below(const std::string& folder, const std::string& prefix, int level, std::vector<std::string>& files) {
  const std::string here = prefix.empty() ? folder : folder + "/" + prefix;
  MAGISTER_CHECK(
      level < kMostLevels && files.size() < kMostFiles, ExitCode::kData,
      "{}: has more than {} levels of folders or {} files (links may go round in it); name the folder or the "
      "files that are meant",
      printable(here, 300), kMostLevels, kMostFiles);
  DIR* const open = ::opendir(here.c_str());
  MAGISTER_CHECK(open != nullptr, ExitCode::kInputOutput,
                 "{}: {} (records in it would be left out); check its permissions", printable(here, 300),
                 std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(open)) names.emplace_back(entry->d_name);
  ::closedir(open);
  for (const std::string& name : names) {
    if (name.starts_with('.') || name.starts_with("__")) continue;
    const std::string relative = prefix.empty() ? name : prefix + "/" + name;
    struct stat status{};
    const bool found = ::stat((folder + "/" + relative).c_str(), &status) == 0;
    if (found && S_ISDIR(status.st_mode)) {
      list_below(folder, relative, level + 1, files);
    } else {
      files.push_back(relative);
    }
  }
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = path.find('/', begin);
    parts.push_back(path.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

bool parts_mean(const std::vector<std::string>& pattern, std::size_t at, const std::vector<std::string>& file,
                std::size_t part) {
  if (at == pattern.size()) return part == file.size();
  if (pattern[at] == "**") {
    if (at + 1 < pattern.size() && pattern[at + 1] == "**") return parts_mean(pattern, at + 1, file, part);
    if (at + 1 == pattern.size()) return part < file.size();
    for (std::size_t next = part; next < file.size(); ++next) {
      if (parts_mean(pattern, at + 1, file, next)) return true;
    }
    return false;
  }
  return part < file.size() && ::fnmatch(pattern[at].c_str(), file[part].c_str(), FNM_NOESCAPE) == 0 &&
         parts_mean(pattern, at + 1, file, part + 1);
}

// The words that name a split. Any other split is named by its own word only.
using Words = std::vector<std::string>;
const std::array<std::pair<const char*, Words>, 3> kSplits = {{{"train", {"train", "training"}},
                                                               {"validation", {"validation", "valid", "dev", "val"}},
                                                               {"test", {"test", "testing", "eval", "evaluation"}}}};

bool separates(char c) { return std::string_view("-._ ").find(c) != std::string_view::npos || (c >= '0' && c <= '9'); }

// Position of the word, between separators, in a name: 0 alone, 1 at its beginning, 2 at its end, 3 inside; files with
// a lower number come first. In a file's name something must follow the word.
std::optional<int> form_of(const std::string& name, const std::string& word, bool is_folder) {
  std::optional<int> found;
  for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0, ends = end == name.size();
    if ((!begins && !separates(name[at - 1])) || (ends ? !is_folder : !separates(name[end]))) continue;
    const int form = (begins ? 0 : 2) + (ends ? 0 : 1);
    if (!found || form < *found) found = form;
  }
  return found;
}

struct Named {
  int order = 0;
  std::string file, place;
};

// The files that one of the words names, through a folder above them or through their own names.
std::vector<Named> named(const std::vector<std::string>& files, const Words& words, bool by_folder) {
  std::vector<Named> found;
  for (const std::string& file : files) {
    const std::vector<std::string> parts = parts_of(file);
    std::optional<Named> best;
    for (std::size_t word = 0; word < words.size(); ++word) {
      std::string place;
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const bool is_folder = part + 1 < parts.size();
        const auto form = is_folder == by_folder ? form_of(parts[part], words[word], is_folder) : std::nullopt;
        const int order = static_cast<int>(word) * 4 + form.value_or(0);
        if (form && (!best || order < best->order)) best = Named{order, file, place};
        place += (place.empty() ? "" : "/") + parts[part];
      }
    }
    if (best) found.push_back(*best);
  }
  std::sort(found.begin(), found.end(),
            [](const Named& a, const Named& b) { return std::tie(a.order, a.file) < std::tie(b.order, b.file); });
  return found;
}

// "train" for "data/train-00000-of-00002.parquet"; empty: not a shard's name. The numbers have five digits, as the Hub
// writes them.
std::string split_of_shard(const std::string& file) {
  constexpr std::string_view kForm = "-00000-of-00000";
  if (!file.starts_with("data/") || file.find('/', 5) != std::string::npos) return {};
  for (std::size_t at = file.size(); at-- > 6;) {
    const std::string_view shard = std::string_view(file).substr(at, kForm.size());
    const bool fits = shard.size() == kForm.size() &&
                      std::equal(shard.begin(), shard.end(), kForm.begin(),
                                 [](char c, char form) { return form == '0' ? c >= '0' && c <= '9' : c == form; });
    if (fits && file.find('.', at + kForm.size()) != std::string::npos) return file.substr(5, at - 5);
  }
  return {};
}

NamedFiles without_order(const std::vector<Named>& found) {
  NamedFiles result;
  std::set<std::string> places;
  for (const Named& one : found) {
    result.files.push_back(one.file);
    places.insert(one.place);
  }
  result.places.assign(places.begin(), places.end());
  return result;
}

}  // namespace

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  list_below(folder, "", 0, files);
  std::sort(files.begin(), files.end());
  return files;
}

bool pattern_means(const std::string& pattern, const std::string& file) {
  return parts_mean(parts_of(pattern), 0, parts_of(file), 0);
}

NamedFiles files_by_name(const std::vector<std::string>& files, const std::string& split) {
  NamedFiles shards;
  std::set<std::string> splits;
  for (const std::string& file : files) {
    if (const std::string name = split_of_shard(file); !name.empty()) splits.insert(name);
  }
  if (!splits.empty()) {
    // All files that begin like the shards are listed, so that "train-extra.parquet" is refused later as not a shard.
    for (const std::string& file : files) {
      const std::string begin = "data/" + split;
      const bool fits = splits.contains(split) && file.starts_with(begin) && file.size() > begin.size() &&
                        std::string_view("-_.").find(file[begin.size()]) != std::string_view::npos;
      if (fits) shards.files.push_back(file);
    }
    shards.places = {"data"};
    shards.splits.assign(splits.begin(), splits.end());
    return shards;
  }
  const auto* const known =
      std::find_if(kSplits.begin(), kSplits.end(), [&](const auto& one) { return one.first == split; });
  for (const bool by_folder : {true, false}) {
    NamedFiles result = without_order(named(files, known == kSplits.end() ? Words{split} : known->second, by_folder));
    for (const auto& [name, words] : kSplits) {
      if (!named(files, words, by_folder).empty()) result.splits.emplace_back(name);
    }
    if (!result.files.empty() || (known != kSplits.end() && !result.splits.empty())) return result;
  }
  return {};
}

}  // namespace magister
