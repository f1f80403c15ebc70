// Walks over the tree of one text; yaml_tree.cpp limits its depth and size.
#include "magister/core/yaml_values.h"

#include <fmt/format.h>

#include "core/yaml_tree.h"
#include "magister/core/error.h"

namespace magister {
namespace {

using Node = ConfigNode::Value;

void collect(const Node& node, std::vector<std::string>& path, std::vector<YamlValue>& values) {
  if (node.kind == Node::Kind::kScalar || node.kind == Node::Kind::kEmpty)
    values.push_back({path, node.scalar, node.quoted, static_cast<std::uint64_t>(node.position.line)});
  for (const auto& [name, member] : node.members) {
    path.push_back(name);
    collect(*member, path, values);
    path.pop_back();
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    path.push_back(fmt::format("{}", i));
    collect(*node.items[i], path, values);
    path.pop_back();
  }
}

}  // namespace

std::vector<YamlValue> yaml_values(std::string_view text, const std::string& source) {
  std::vector<ConfigFault> faults;
  const auto tree = parse_yaml(text, 0, "", faults);
  if (!faults.empty()) {
    const ConfigFault& first = faults.front();
    fail(ExitCode::kData, "{}:{}:{}: {}", printable(source), first.position.line, first.position.column, first.message);
  }
  std::vector<YamlValue> values;
  std::vector<std::string> path;
  if (tree != nullptr) collect(*tree, path, values);
  return values;
}

}  // namespace magister
