// The resolved experiment as YAML: block maps and lists, scalars in one fixed spelling, so that equal experiments are
// equal texts (their sha256 goes into every results file). Two spaces a level; lists of scalars on one line.
#include "core/config_state.h"

namespace magister {

namespace {

using Resolved = ConfigNode::Resolved;
using Keep = std::function<bool(const std::string&)>;

std::string flow_list(const std::vector<std::string>& scalars) {
  std::string out = "[";
  for (const std::string& scalar : scalars) out += (out.size() > 1 ? ", " : "") + scalar;
  return out + "]";
}

// A map's lines; the first is not indented when it follows "- ".
void write_map(const Resolved& map, const std::string& path, const std::string& indent, bool after_dash,
               const Keep& keep, std::string& out);

void write_member(const Resolved& value, const std::string& path, const std::string& indent, const Keep& keep,
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
      write_map(value, path, indent + "  ", false, keep, out);
      return;
    case Resolved::Kind::kList:
      out += '\n';
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        const std::string item_path = path + "." + std::to_string(i);
        if (keep && !keep(item_path)) continue;
        out += indent + "  - ";
        write_map(*value.items[i], item_path, indent + "    ", true, keep, out);
      }
  }
}

void write_map(const Resolved& map, const std::string& path, const std::string& indent, bool after_dash,
               const Keep& keep, std::string& out) {
  for (const auto& [name, value] : map.members) {
    const std::string member_path = path.empty() ? name : path + "." + name;
    // A section of which nothing was read has no lines; "key:" alone would read as an empty value.
    if ((keep && !keep(member_path)) || (value->kind == Resolved::Kind::kMap && value->members.empty())) continue;
    out += (after_dash ? "" : indent) + name + ":";
    after_dash = false;
    write_member(*value, member_path, indent, keep, out);
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

std::string ConfigDocument::resolved_yaml(const std::function<bool(const std::string&)>& keep) const {
  std::string out;
  write_map(shared_->resolved, "", "", false, keep, out);
  return out;
}

}  // namespace magister
