// The document around the nodes: reading the file, the overrides, and finish(), which tells every fault at once.
// Nothing throws before finish() but a text that is not a map at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/config_groups.h"
#include "core/config_state.h"
#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"
#include "magister/core/foreign_names.h"

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
                               fmt::format("{} stands here (an experiment is a map of keys); "
                                           "begin with \"name: ...\"",
                                           name_of(shared_->tree->kind))});
    finish();
  }
  for (std::size_t i = 0; i < overrides.size(); ++i) apply_override(*shared_, overrides[i], static_cast<int>(i) + 1);
}

void ConfigDocument::expand_groups(const std::string& list) {
  if (magister::expand_groups(*shared_, list)) return;
  shared_->tree->abandoned = true;  // nothing of it will be read
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

bool has_other_name(const ConfigKey& key, const std::string& name) {
  return std::find(key.other_names.begin(), key.other_names.end(), name) != key.other_names.end();
}

// The path of the key that is called so, by us or by other programs, in the maps below these keys; empty: there is none. Lists
// of maps are left out: what another task knows is of no help for this one.
std::string find_below(const ConfigRules& rules, const std::string& prefix, const std::string& name) {
  for (const auto& key : rules.keys) {
    if (key->maps.empty() || key->is_list) continue;
    const std::string inside = prefix + key->name + ".";
    for (const auto& inner : key->maps.front()->keys) {
      if (inner->rules.empty() && inner->maps.empty())
        continue;  // a key of another map that is known here by other names
      if (inner->name == name || has_other_name(*inner, name)) return inside + inner->name;
    }
    if (const std::string found = find_below(*key->maps.front(), inside, name); !found.empty()) return found;
  }
  return {};
}

// The same in the lists of maps, of the first entry that knows the name ("tasks.0.dataset.limit"): for a key that stands outside of them, as a
// key of a task that was written at the top of the file does.
std::string find_in_entries(const ConfigRules& all, const std::string& prefix, const std::string& name) {
  for (const auto& key : all.keys) {
    if (!key->is_list || prefix.starts_with(key->name + ".")) continue;
    for (std::size_t i = 0; i < key->maps.size(); ++i) {
      const std::string entry = fmt::format("{}.{}.", key->name, i);
      for (const auto& inner : key->maps[i]->keys) {
        if (inner->rules.empty() && inner->maps.empty()) continue;
        if (inner->name == name || has_other_name(*inner, name)) return entry + inner->name;
      }
      if (const std::string found = find_below(*key->maps[i], entry, name); !found.empty()) return found;
    }
  }
  return {};
}

// A map of keys as the reader knows it, and what its keys' paths begin with ("tasks.0.").
struct KnownMap {
  const ConfigRules& rules;
  std::string prefix;
};

// What an unknown key of the map `at` was probably meant to be: the key that other programs call so, the same key of the map around
// it (indented too far), the nearest key, or the same key where it belongs, in a task perhaps.
std::string meant_by(const std::string& name, const KnownMap& at, const KnownMap& around, const ConfigRules& all) {
  const auto& [here, prefix] = at;
  for (const auto& key : here.keys) {
    if (has_other_name(*key, name)) return key->name;
  }
  if (const ConfigKey* const outside = around.rules.find(name);
      outside != nullptr && !around.prefix.empty() && !(outside->rules.empty() && outside->maps.empty())) {
    return around.prefix + name;
  }
  if (const std::string nearest = nearest_name(name, here.names()); !nearest.empty()) return nearest;
  if (const std::string below = find_below(here, prefix, name); !below.empty()) return below;
  if (const std::string elsewhere = find_below(all, "", name); !elsewhere.empty()) return elsewhere;
  if (all.find(name) != nullptr && !prefix.empty()) return name + " at the top of the file";
  return find_in_entries(all, prefix, name);
}

// A key that other programs call so in this very map comes first, then what the table of their words says.
std::string advice_for(const std::string& name, const KnownMap& at, const KnownMap& around, const ConfigRules& all) {
  const bool called_so_here = std::any_of(at.rules.keys.begin(), at.rules.keys.end(),
                                          [&](const auto& key) { return has_other_name(*key, name); });
  if (const std::string foreign = called_so_here ? "" : foreign_key(name); !foreign.empty()) return foreign;
  const std::string meant = meant_by(name, at, around, all);
  return meant.empty() ? "remove it" : "did you mean " + meant + "?";
}

void find_unknown(const Value& value, const std::string& path, const KnownMap& around, const ConfigRules& all,
                  std::vector<ConfigFault>& faults) {
  if (value.abandoned) return;
  static const ConfigRules kNone;
  const KnownMap at{value.rules == nullptr ? kNone : *value.rules, path.empty() ? "" : path + "."};
  const auto& [here, prefix] = at;
  for (const auto& [name, member] : value.members) {
    if (member->known) {
      find_unknown(*member, prefix + name, at, all, faults);
      continue;
    }
    faults.push_back({member->key_position, printable(prefix + name),
                      fmt::format("unknown key (it would change nothing; known here: {}); {}", join_names(here.names()),
                                  advice_for(name, at, around, all))});
  }
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    find_unknown(*value.items[i], prefix + fmt::format("{}", i), around, all, faults);
  }
}

}  // namespace

namespace {

// "tasks.3.name" as "tasks..name": what all copies of an entry have.
std::string without_numbers(std::string path) {
  std::erase_if(path, [](char c) { return c >= '0' && c <= '9'; });
  return path;
}

}  // namespace

void ConfigDocument::finish() const {
  std::vector<ConfigFault> faults = shared_->faults;
  if (shared_->tree != nullptr) find_unknown(*shared_->tree, "", {shared_->rules, ""}, shared_->rules, faults);
  if (faults.empty()) return;
  std::stable_sort(faults.begin(), faults.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  // A fault of a repeated entry is each copy's: the first stands for all.
  const auto same = [](const ConfigFault& a, const ConfigFault& b) {
    return a.position.argument == 0 && a.position == b.position && a.message == b.message &&
           without_numbers(a.path) == without_numbers(b.path);
  };
  faults.erase(std::unique(faults.begin(), faults.end(), same), faults.end());
  std::string all;
  for (std::size_t i = 0; i < std::min(faults.size(), kMaxFaultsShown); ++i) {
    const ConfigFault& fault = faults[i];
    all += (all.empty() ? "" : "\n") + shared_->where(fault.position) + ": " +
           (fault.path.empty() ? "" : fault.path + ": ") + fault.message +
           (fault.map == nullptr || fault.map->keys.empty() ? "" : ": " + join_names(fault.map->names()));
  }
  if (faults.size() > kMaxFaultsShown) {
    all += fmt::format("\n{}: {} further faults (not shown); correct these first", shared_->source,
                       faults.size() - kMaxFaultsShown);
  }
  throw Error(ExitCode::kConfig, all);
}

}  // namespace magister
