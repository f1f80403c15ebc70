// ConfigDocument: reads the file, applies the overrides and expands the groups; finish() reports all faults together.
// Before finish(), only a text that is not a map, groups that cannot be expanded and a file that cannot be read throw.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/config_groups.h"
#include "core/config_state.h"
#include "core/unknown_keys.h"
#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"

namespace magister {

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

constexpr std::size_t kMaxFaultsShown = 50;

}  // namespace

std::string_view name_of(ConfigNode::Value::Kind kind) {
  switch (kind) {
    case Kind::kScalar:
      return "a single value";
    case Kind::kEmpty:
      return "nothing";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

std::string join_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string ConfigDocument::read_file(const std::string& path) {
  const std::string shown = printable(path);
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block
  if (!descriptor.is_open()) {
    fail(ExitCode::kConfig, "{}: {} (the experiment cannot be read); check the path", shown, std::strerror(errno));
  }
  struct stat status{};
  if (::fstat(descriptor.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(ExitCode::kConfig, "{}: not a regular file (an experiment is one); give the path of a YAML file", shown);
  }
  std::string text;
  char block[65536];
  for (ssize_t got = 0; (got = ::read(descriptor.number(), block, sizeof block)) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ExitCode::kInputOutput, "{}: {} (reading broke off); check the disk", shown, std::strerror(errno));
    text.append(block, static_cast<std::size_t>(got));
    if (text.size() > kMaxBytes) {
      fail(ExitCode::kConfig, "{}: larger than {} bytes (no experiment is); put data into files of its own", shown,
           kMaxBytes);
    }
  }
  return text;
}

ConfigDocument::ConfigDocument(std::string_view text, const std::string& source,
                               const std::vector<std::string>& overrides)
    : shared_(std::make_unique<ConfigNode::Shared>()) {
  shared_->source = printable(source);
  shared_->arguments = overrides;
  shared_->tree = parse_yaml(text, 0, "", shared_->faults);
  if (shared_->tree == nullptr && shared_->faults.empty()) {
    shared_->faults.push_back({{0, 1, 1},
                               "",
                               "nothing but space and comments (an experiment needs name, model and tasks); "
                               "see the examples in configs/"});
  }
  if (shared_->tree == nullptr) finish();
  if (shared_->tree->kind != Kind::kMap) {
    shared_->faults.push_back({shared_->tree->position, "",
                               fmt::format("{} is given (an experiment is a map of keys); begin with \"name: ...\"",
                                           name_of(shared_->tree->kind))});
    finish();
  }
  for (std::size_t i = 0; i < overrides.size(); ++i) apply_override(*shared_, overrides[i], static_cast<int>(i) + 1);
}

void ConfigDocument::expand_groups(const std::string& list) {
  if (magister::expand_groups(*shared_, list)) return;
  shared_->tree->abandoned = true;  // no part of it will be read
  finish();
}

ConfigDocument::~ConfigDocument() = default;

std::unique_ptr<ConfigDocument> ConfigDocument::for_rules(std::string_view text) {
  auto document = std::make_unique<ConfigDocument>(text, "rules");
  document->shared_->for_rules = true;
  return document;
}

ConfigNode ConfigDocument::root() {
  return ConfigNode(shared_.get(), shared_->tree.get(), shared_->tree.get(), &shared_->resolved, &shared_->rules, "",
                    false);
}

const ConfigRules& ConfigDocument::rules() const { return shared_->rules; }

std::string ConfigNode::Shared::where(const ConfigPosition& at) const {
  if (at.argument == 0) return fmt::format("{}:{}:{}", source, at.line, at.column);
  return fmt::format("argument {}", printable(arguments[static_cast<std::size_t>(at.argument) - 1], 80));
}

namespace {

// Turns "tasks.3.name" into "tasks..name", which is the same for all copies of an entry.
std::string without_numbers(std::string path) {
  std::erase_if(path, [](char c) { return c >= '0' && c <= '9'; });
  return path;
}

// Turns "tasks.3.top_k" into ".top_k".
std::string inside_entry(const std::string& path) {
  const std::size_t number = path.find_first_of("0123456789");
  return number == std::string::npos ? path : path.substr(std::min(path.find('.', number), path.size()));
}

}  // namespace

void ConfigDocument::finish() const {
  std::vector<ConfigFault> faults = shared_->faults;
  if (shared_->tree != nullptr) find_unknown_keys(*shared_->tree, shared_->rules, faults);
  if (faults.empty()) return;
  std::stable_sort(faults.begin(), faults.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  // A fault of a repeated entry occurs in each copy, so only the first is shown. All faults of one argument have the
  // same position.
  const auto same = [](const ConfigFault& a, const ConfigFault& b) {
    const bool both = a.position == b.position && a.message == b.message;
    return both && (a.position.argument == 0 ? without_numbers(a.path) == without_numbers(b.path)
                                             : inside_entry(a.path) == inside_entry(b.path));
  };
  faults.erase(std::unique(faults.begin(), faults.end(), same), faults.end());
  std::string all;
  for (std::size_t i = 0; i < std::min(faults.size(), kMaxFaultsShown); ++i) {
    const ConfigFault& fault = faults[i];
    all += (all.empty() ? "" : "\n") + shared_->where(fault.position) + ": " +
           (fault.path.empty() ? "" : fault.path + ": ") + fault.message;
  }
  if (faults.size() > kMaxFaultsShown) {
    all += fmt::format("\n{}: {} further faults (not shown); correct these first", shared_->source,
                       faults.size() - kMaxFaultsShown);
  }
  throw Error(ExitCode::kConfig, all);
}

}  // namespace magister
