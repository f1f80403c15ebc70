// The document around the nodes: reading the file, the overrides, and finish(), which tells every fault at once.
// Nothing throws before finish() but a text that is no map at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/config_state.h"
#include "magister/core/error.h"

namespace magister {

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

constexpr std::size_t kMaxFaultsShown = 50;

}  // namespace

std::string_view name_of(ConfigNode::Value::Kind kind) {
  switch (kind) {
    case Kind::kScalar: return "a single value";
    case Kind::kEmpty: return "nothing";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a map";
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
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block
  if (descriptor < 0) {
    fail(ExitCode::kConfig, "{}: {} (the experiment cannot be read); check the path", shown, std::strerror(errno));
  }
  struct Close {
    int descriptor;
    ~Close() { ::close(descriptor); }
  } close{descriptor};
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(ExitCode::kConfig, "{}: not a regular file (an experiment is one); give the path of a YAML file", shown);
  }
  std::string text;
  char block[65536];
  for (ssize_t got = 0; (got = ::read(descriptor, block, sizeof block)) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ExitCode::kInputOutput, "{}: {} (reading broke off); check the disk", shown, std::strerror(errno));
    text.append(block, static_cast<std::size_t>(got));
    if (text.size() > kMaxBytes) {
      fail(ExitCode::kConfig, "{}: larger than {} bytes (no experiment is); put data into files of its own", shown, kMaxBytes);
    }
  }
  return text;
}

ConfigDocument::ConfigDocument(std::string_view text, const std::string& source, const std::vector<std::string>& overrides)
    : shared_(std::make_unique<ConfigNode::Shared>()) {
  shared_->source = printable(source);
  shared_->arguments = overrides;
  shared_->tree = parse_yaml(text, 0, "", shared_->faults);
  if (shared_->tree == nullptr && shared_->faults.empty()) {
    shared_->faults.push_back({{0, 1, 1}, "", "nothing but space and comments (an experiment needs name, model and tasks); "
                               "see the examples in configs/"});
  }
  if (shared_->tree == nullptr) finish();
  if (shared_->tree->kind != Kind::kMap) {
    shared_->faults.push_back({shared_->tree->position, "", fmt::format("{} stands here (an experiment is a map of keys); "
                               "begin with \"name: ...\"", name_of(shared_->tree->kind))});
    finish();
  }
  for (std::size_t i = 0; i < overrides.size(); ++i) apply_override(*shared_, overrides[i], static_cast<int>(i) + 1);
}

ConfigDocument::~ConfigDocument() = default;

ConfigNode ConfigDocument::root() {
  return ConfigNode(shared_.get(), shared_->tree.get(), shared_->tree.get(), &shared_->resolved, "", false);
}

namespace {

void find_unknown(const Value& value, const std::string& path, std::vector<ConfigFault>& faults) {
  if (value.abandoned) return;
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& [name, member] : value.members) {
    if (member->known) {
      find_unknown(*member, prefix + name, faults);
      continue;
    }
    const std::string nearest = nearest_name(name, value.asked);
    faults.push_back({member->key_position, printable(prefix + name),
                      fmt::format("unknown key (it would change nothing; known here: {}); {}", join_names(value.asked),
                                  nearest.empty() ? "remove it" : "did you mean " + nearest + "?")});
  }
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    find_unknown(*value.items[i], prefix + fmt::format("{}", i), faults);
  }
}

}  // namespace

void ConfigDocument::finish() const {
  std::vector<ConfigFault> faults = shared_->faults;
  if (shared_->tree != nullptr) find_unknown(*shared_->tree, "", faults);
  if (faults.empty()) return;
  std::stable_sort(faults.begin(), faults.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  std::string all;
  for (std::size_t i = 0; i < std::min(faults.size(), kMaxFaultsShown); ++i) {
    const ConfigFault& fault = faults[i];
    const ConfigPosition& at = fault.position;
    const std::string where =
        at.argument == 0 ? fmt::format("{}:{}:{}", shared_->source, at.line, at.column)
                         : fmt::format("argument {}", printable(shared_->arguments[static_cast<std::size_t>(at.argument) - 1], 80));
    all += (all.empty() ? "" : "\n") + where + ": " + (fault.path.empty() ? "" : fault.path + ": ") + fault.message;
  }
  if (faults.size() > kMaxFaultsShown) {
    all += fmt::format("\n{}: {} further faults (not shown); mend these first", shared_->source, faults.size() - kMaxFaultsShown);
  }
  throw Error(ExitCode::kConfig, all);
}

}  // namespace magister
