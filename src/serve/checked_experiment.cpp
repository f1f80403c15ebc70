#include "serve/checked_experiment.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "magister/core/error.h"
#include "serve/own_program.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

// A file that exists as long as this object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& root, const std::string& text) {
    static std::atomic<std::uint64_t> number = 0;
    path_ = fmt::format("{}/check.{}.yaml", root, number++);
    std::ofstream file(path_, std::ios::binary);
    file << text << std::flush;
    MAGISTER_CHECK(file.good(), ExitCode::kInputOutput, "{}: cannot be written; look at its folder", printable(path_));
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path below = path.lexically_relative(folder);
  return !below.empty() && *below.begin() != "..";
}

// The part of a pattern before its first wildcard, up to a slash.
std::string fixed_part(const std::string& text) {
  const std::size_t wildcard = text.find_first_of("*?[{");
  return wildcard == std::string::npos ? text : text.substr(0, text.rfind('/', wildcard) + 1);
}

bool leaves_upwards(const fs::path& path) { return std::find(path.begin(), path.end(), "..") != path.end(); }

// True unless the text is a path (absolute, upwards, or of a file that exists below the root) to another folder than
// the root and those that are allowed; links are followed.
bool is_allowed(const ServeOptions& options, const std::string& text) {
  std::error_code error;
  const fs::path named = fixed_part(text), from_root = fs::path(options.root) / named;
  if (named.empty() || (!named.is_absolute() && !leaves_upwards(named) && !fs::exists(from_root, error))) return true;
  const fs::path path = fs::weakly_canonical(from_root, error);
  if (error) return false;
  bool found = lies_in(path, fs::weakly_canonical(options.root));
  for (const std::string& folder : options.folders) found |= lies_in(path, fs::weakly_canonical(folder));
  return found;
}

// The `name` of the resolved experiment.
std::string name_in(const std::string& resolved) {
  const std::size_t name = resolved.starts_with("name:") ? 0 : resolved.find("\nname:");
  if (name == std::string::npos) return "";
  const std::size_t begin = resolved.find(':', name) + 1;
  std::string text = resolved.substr(begin, resolved.find('\n', begin) - begin);
  std::erase_if(text, [](char c) { return c == ' ' || c == '"'; });
  return text;
}

// The texts of the resolved experiment that may be paths: the value of every line "key: value" and "- value".
std::vector<std::string> texts_of(const std::string& resolved) {
  std::vector<std::string> texts;
  std::istringstream lines(resolved);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": "), item = line.find("- ");
    std::string value = colon != std::string::npos  ? line.substr(colon + 2)
                        : item != std::string::npos ? line.substr(item + 2)
                                                    : line;
    std::erase_if(value, [](char c) { return c == '"' || c == '\'' || c == '[' || c == ']'; });
    for (std::size_t at = 0, comma = 0; comma != std::string::npos; at = comma + 1) {
      comma = value.find(',', at);
      std::string text = value.substr(at, comma == std::string::npos ? comma : comma - at);
      text.erase(0, text.find_first_not_of(' '));
      if (!text.empty()) texts.push_back(std::move(text));
    }
  }
  return texts;
}

}  // namespace

void remove_old_checks(const std::string& root) {
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    std::error_code ignored;
    if (name.starts_with("check.") && name.ends_with(".yaml")) fs::remove(entry.path(), ignored);
  }
}

CheckedExperiment check_experiment(const ServeOptions& options, const std::string& text) {
  CheckedExperiment checked;
  checked.text = text;
  const TemporaryFile file(options.root, text);
  const ProgramAnswer answer = ask_own_program(options, {"run", "--print-config", file.path()});
  if (answer.start_error != 0 || answer.took_too_long) {
    checked.status = 503;
    checked.fault = "the experiment could not be checked in time; try again";
    return checked;
  }
  if (answer.exit_code != 0) {
    checked.fault = answer.errors;
    for (std::size_t at; (at = checked.fault.find(file.path())) != std::string::npos;)
      checked.fault.replace(at, file.path().size(), "experiment");
    if (checked.fault.empty()) checked.fault = "the experiment could not be read";
    return checked;
  }
  for (const std::string& value : texts_of(answer.output)) {
    if (is_allowed(options, value)) continue;
    checked.status = 403;
    checked.fault = fmt::format(
        "{} is in no folder of this service (experiments name files below its root); move it there, or start the "
        "service with --folder",
        printable(value, 200));
    return checked;
  }
  checked.name = name_in(answer.output);
  return checked;
}

}  // namespace magister
