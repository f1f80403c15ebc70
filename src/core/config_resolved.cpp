// The resolved experiment as YAML: block maps and lists, scalars in one fixed spelling, so that equal experiments are
// equal texts (their sha256 goes into every results file). Indentation is two spaces per level; lists of scalars are on
// one line.
#include <algorithm>

#include "core/config_state.h"

namespace magister {

namespace {

using Resolved = ConfigNode::Resolved;

// The part of the experiment that is written: all of it, or the identity of one entry of a list.
struct Part {
  bool of_identity = false;  // leave out keys outside the identity
  std::string list{};        // the list of maps
  std::size_t entry = 0;     // of this list, write only this entry

  bool has_entry(const std::string& path, std::size_t i) const { return path != list || i == entry; }
  bool has_member(const Resolved& map, const std::string& name) const {
    const std::vector<std::string>& left_out = of_identity ? map.outside_identity : map.identity_alone;
    return std::find(left_out.begin(), left_out.end(), name) == left_out.end();
  }
};

std::string flow_list(const std::vector<std::string>& scalars) {
  std::string out = "[";
  for (const std::string& scalar : scalars) out += (out.size() > 1 ? ", " : "") + scalar;
  return out + "]";
}

// Writes the lines of a map; the first line is not indented if it follows "- ".
void write_map(const Resolved& map, const std::string& path, const std::string& indent, bool after_dash,
               const Part& part, std::string& out);

void write_member(const Resolved& value, const std::string& path, const std::string& indent, const Part& part,
                  std::string& out) {
  switch (value.kind) {
    case Resolved::Kind::kScalar:
      out += " " + value.scalar + "\n";
      return;
    case Resolved::Kind::kFlowList:
      out += " " + flow_list(value.flow) + "\n";
      return;
    case Resolved::Kind::kMap:
      out += '\n';
      write_map(value, path, indent + "  ", false, part, out);
      return;
    case Resolved::Kind::kList:
      out += '\n';
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        if (!part.has_entry(path, i)) continue;
        out += indent + "  - ";
        write_map(*value.items[i], path + "." + std::to_string(i), indent + "    ", true, part, out);
      }
  }
}

void write_map(const Resolved& map, const std::string& path, const std::string& indent, bool after_dash,
               const Part& part, std::string& out) {
  for (const auto& [name, value] : map.members) {
    // A section without any read has no lines; "key:" alone would read as an empty value.
    if (!part.has_member(map, name) || (value->kind == Resolved::Kind::kMap && value->members.empty())) continue;
    out += (after_dash ? "" : indent) + name + ":";
    after_dash = false;
    write_member(*value, path.empty() ? name : path + "." + name, indent, part, out);
  }
}

}  // namespace

ConfigNode::Resolved& ConfigNode::Resolved::member(std::string_view key) {
  for (auto& [name, value] : members) {
    if (name == key) return *value;
  }
  members.emplace_back(key, std::make_unique<Resolved>());
  return *members.back().second;
}

std::string ConfigDocument::resolved_yaml() const {
  std::string out;
  write_map(shared_->resolved, "", "", false, {}, out);
  return out;
}

std::string ConfigDocument::identity_yaml(std::string_view list, std::size_t entry) const {
  std::string out;
  const Part part{.of_identity = true, .list = std::string(list), .entry = entry};
  write_map(shared_->resolved, "", "", false, part, out);
  return out;
}

}  // namespace magister
