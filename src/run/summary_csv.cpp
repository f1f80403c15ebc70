// Walks the tree of the summary in its order.
#include "magister/run/summary_csv.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace magister {
namespace {

using nlohmann::ordered_json;

std::string number(const ordered_json& value) { return value.is_null() ? std::string() : value.dump(); }

// Quotes as RFC 4180 requires: a name may contain commas, quotes and line ends.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

void add_rows(const ordered_json& node, const std::string& measure, std::string& out) {
  if (node.is_object() && node.contains("share") && node.contains("wilson95")) {
    out += fmt::format("{},{},{},{},{},{}\n", quoted(measure), number(node["share"]), number(node["count"]),
                       number(node["of"]), number(node["wilson95"][0]), number(node["wilson95"][1]));
  } else if (node.is_structured()) {
    std::size_t index = 0;
    for (const auto& [name, part] : node.items()) {
      const std::string last = node.is_object() ? name : std::to_string(index++);
      add_rows(part, measure.empty() ? last : measure + "." + last, out);
    }
  } else {
    const std::string value = node.is_string() ? quoted(node.get<std::string>()) : number(node);
    out += fmt::format("{},{},,,,\n", quoted(measure), value);
  }
}

}  // namespace

std::string summary_csv(const ordered_json& summary) {
  std::string out = "measure,value,count,of,wilson95_low,wilson95_high\n";
  add_rows(summary, "", out);
  return out;
}

}  // namespace magister
