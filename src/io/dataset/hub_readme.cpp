// Reads the list `configs` from the head of a data set's README.md, YAML between two lines "---". Source: the Hub's
// documentation "Manual Configuration", and the behaviour of `datasets`.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "io/dataset/hub_layout.h"
#include "magister/core/error.h"
#include "magister/core/yaml_values.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

// Heads of hundreds of configurations with their features take 1 MB.
constexpr std::uint64_t kMaxReadmeBytes = 16 << 20;

// Keeps the lines of the key `configs` and empties all others: line numbers stay, and the head's other keys (tags,
// languages, features) need not follow the rules of an experiment file.
std::string lines_of_configs(const std::string& text) {
  std::string lines;
  bool in_head = false, in_configs = false;
  for (std::size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    const bool is_mark = line == "---";
    if (is_mark && in_head) return lines;
    if (!is_mark && !in_head) return {};
    in_head = true;
    const bool begins_key = !line.empty() && std::string_view(" \t-#").find(line.front()) == std::string_view::npos;
    if (begins_key) in_configs = line.starts_with("configs:");
    if (in_configs && !is_mark) lines += line;
    lines += '\n';
  }
  return {};  // a head without an end does not count
}

struct ReadmeReader {
  std::string where;
  std::vector<HubConfig> configs;

  [[noreturn]] void refuse(const YamlValue& value) const {
    std::string key;
    for (const std::string& part : value.path) key += (key.empty() ? "" : ".") + part;
    fail(ExitCode::kData,
         "{}: {} is {} (its files would be read in another way than it says); name the files with dataset.path", where,
         printable(key, 120), printable(value.text, 120));
  }

  // True for the index of a list entry. A map's key may be any number, so it is bounded before a vector is resized to
  // it.
  static bool is_number(const std::string& text) {
    return text.size() <= 5 && text.find_first_not_of("0123456789") == std::string::npos;
  }
  static std::size_t number(const std::string& text) {
    return static_cast<std::size_t>(std::strtoull(text.c_str(), nullptr, 10));
  }

  // Checks that a path or pattern stays within the folder.
  std::string inside(const YamlValue& value) const {
    const std::string& path = value.text;
    const bool leaves = path.starts_with('/') || ("/" + path + "/").find("/../") != std::string::npos ||
                        path.find("://") != std::string::npos || path.find("::") != std::string::npos;
    if (path.empty() || leaves) refuse(value);
    return path.starts_with("./") ? path.substr(2) : path;
  }

  void add_pattern(HubConfig& config, std::size_t entry, const YamlValue& value) const {
    if (config.splits.size() <= entry) config.splits.resize(entry + 1);
    config.splits[entry].patterns.push_back(inside(value));
  }

  // Reads data_files: a pattern, a list of patterns, or a list of {split, path}.
  void read_files(HubConfig& config, const YamlValue& value) const {
    const std::vector<std::string>& path = value.path;
    if (path.size() == 3 || (path.size() == 4 && is_number(path[3]))) {
      add_pattern(config, 0, value);
      config.splits[0].split = "train";
      return;
    }
    if (path.size() < 5 || !is_number(path[3])) refuse(value);
    const std::size_t entry = number(path[3]);
    if (path[4] == "path" && (path.size() == 5 || (path.size() == 6 && is_number(path[5])))) {
      add_pattern(config, entry, value);
    } else if (path[4] == "split" && path.size() == 5 && !value.text.empty()) {
      if (config.splits.size() <= entry) config.splits.resize(entry + 1);
      config.splits[entry].split = value.text;
    } else {
      refuse(value);
    }
  }

  void read(const YamlValue& value) {
    const std::vector<std::string>& path = value.path;
    if (path.size() == 1 && value.text.empty()) return;  // "configs:" without a value
    if (path.size() < 3 || !is_number(path[1])) refuse(value);
    if (configs.size() <= number(path[1])) configs.resize(number(path[1]) + 1);
    HubConfig& config = configs[number(path[1])];
    const bool is_plain = path.size() == 3;
    if (path[2] == "data_files") {
      read_files(config, value);
    } else if (is_plain && path[2] == "config_name") {
      config.name = value.text;
    } else if (is_plain && path[2] == "data_dir") {
      config.folder = inside(value);
      while (config.folder.ends_with('/')) config.folder.pop_back();
    } else if (is_plain && path[2] == "default") {
      config.is_default = value.text == "true" || value.text == "True" || value.text == "TRUE";
    } else if (path[2] != "description" && path[2] != "version") {
      refuse(value);  // settings for a reader of `datasets`: sep, features, ...
    }
  }
};

}  // namespace

std::vector<HubConfig> configs_of_readme(const std::string& path) {
  const std::string text = read_whole_file(path, kMaxReadmeBytes, "its head names the configurations of the data set");
  ReadmeReader reader{printable(path), {}};
  for (const YamlValue& value : yaml_values(lines_of_configs(text), path)) reader.read(value);
  for (const HubConfig& config : reader.configs) {
    const bool whole = !config.name.empty() &&
                       std::all_of(config.splits.begin(), config.splits.end(),
                                   [](const auto& files) { return !files.split.empty() && !files.patterns.empty(); });
    MAGISTER_CHECK(whole, ExitCode::kData,
                   "{}: an entry of configs ({}) lacks its config_name, or a split or path of its data_files (it is "
                   "unknown which files are meant); name the files with dataset.path",
                   reader.where, printable(config.name, 80));
  }
  return reader.configs;
}

}  // namespace magister
