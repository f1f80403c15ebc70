// key.path=value arguments: the value is YAML (a scalar or a [list] on one line) and replaces the value of the file. A
// path may name a key that the file leaves out. A key that no read asks for is found by the same check as in the file.
#include <algorithm>
#include <charconv>
#include <optional>

#include "core/config_state.h"
#include "magister/core/error.h"

namespace magister {

namespace {

using Value = ConfigNode::Value;
using Kind = Value::Kind;

std::optional<std::size_t> list_index(std::string_view step) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
  if (error != std::errc() || end != step.data() + step.size() || step.empty()) return std::nullopt;
  return index;
}

std::vector<std::string> steps_of(std::string_view path) {
  std::vector<std::string> steps;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    steps.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return steps;
}

std::unique_ptr<Value> empty_map(ConfigPosition position) {
  auto map = std::make_unique<Value>();
  map->kind = Kind::kMap;
  map->position = map->key_position = position;
  return map;
}

// Returns the place that `step` names inside `container`; a map gets it if it is missing. Null after a fault.
std::unique_ptr<Value>* enter(Value& container, const std::string& step, const std::string& path_so_far,
                              ConfigPosition position, std::string& problem) {
  if (container.kind == Kind::kEmpty) container.kind = Kind::kMap;
  if (container.kind == Kind::kScalar) {
    problem =
        fmt::format("{} holds a single value (it has no key {}); shorten the path", path_so_far, printable(step, 60));
    return nullptr;
  }
  if (container.kind == Kind::kList) {
    const auto index = list_index(step);
    if (!index || *index >= container.items.size()) {
      problem = fmt::format("{} is a list of {} entries (there is no entry {}); count from 0", path_so_far,
                            container.items.size(), printable(step, 60));
      return nullptr;
    }
    return &container.items[*index];
  }
  for (auto& [name, value] : container.members) {
    if (name == step) return &value;
  }
  container.members.emplace_back(step, empty_map(position));
  return &container.members.back().second;
}

}  // namespace

void apply_override(ConfigNode::Shared& shared, const std::string& text, int argument) {
  const ConfigPosition position{argument, 0, 0};
  const auto fault = [&](const std::string& path, std::string message) {
    shared.faults.push_back({position, path, std::move(message)});
  };
  const std::size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const std::vector<std::string> steps = steps_of(path);
  if (equals == std::string::npos || path.empty()) {
    return fault("", "not of the form key.path=value (what it should change is not clear); write for example seed=1");
  }
  if (std::any_of(steps.begin(), steps.end(), [](const std::string& step) { return step.empty(); })) {
    return fault("",
                 "an empty step in the key path (two points, or a point at an end); write for example "
                 "tasks.0.top_k=8");
  }
  if (steps.size() > static_cast<std::size_t>(ConfigDocument::kMaxDepth)) {
    return fault("", fmt::format("a key path of more than {} steps (no key is that deep); shorten it",
                                 ConfigDocument::kMaxDepth));
  }
  const auto is_map = [&] {
    return fault(printable(path),
                 "a map as value (an argument sets one value); give each key its own argument, or, where it is a text "
                 "with a brace or a colon, put quotes around it inside the shell's: 'key=\"{{ x }}\"'");
  };
  if (const std::size_t begin = text.find_first_not_of(' ', equals + 1);
      begin != std::string::npos && text[begin] == '{')
    return is_map();  // as YAML, {{ x }} of a template would be reported as broken
  const std::size_t faults_before = shared.faults.size();
  std::unique_ptr<Value> value =
      parse_yaml(std::string_view(text).substr(equals + 1), argument, printable(path), shared.faults);
  if (shared.faults.size() != faults_before) return;
  if (!value || value->kind == Kind::kEmpty) {
    return fault(printable(path),
                 "no value after the equals sign (nothing would be set); write one, '\"\"' for an empty text");
  }
  if (value->kind == Kind::kMap) return is_map();
  if (shared.tree->kind == Kind::kEmpty) shared.tree->kind = Kind::kMap;
  std::unique_ptr<Value>* place = &shared.tree;
  std::string so_far;
  for (const std::string& step : steps) {
    std::string problem;
    place = enter(**place, step, so_far.empty() ? "the experiment" : printable(so_far), position, problem);
    if (place == nullptr) return fault(printable(path), problem);
    so_far += (so_far.empty() ? "" : ".") + step;
  }
  *place = std::move(value);
}

}  // namespace magister
