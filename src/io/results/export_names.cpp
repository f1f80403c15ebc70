// Names that depend on the run come from the file's root attributes, fixed ones from the table here, which agrees with
// the columns' comments.
#include "io/results/export_names.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace magister {
namespace {

using nlohmann::json;

const std::map<std::string, std::vector<std::string>>& fixed_names() {
  static const std::map<std::string, std::vector<std::string>> names = {
      {"/judge/parse", {"ok", "low_mass", "unparsed", "truncated", "tie"}},
      {"/judge/order", {"as_given", "exchanged"}},
      {"/generate/finish_reason", {"stop", "length"}},
      {"/rollout/finish_reason", {"stop", "length"}},
      {"/rollout/preferred", {"lost", "won", "not_compared"}}};
  return names;
}

std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Reads a root attribute: names separated by commas, or a JSON list of names.
std::vector<std::string> names_of(const ResultsReader& file, const char* attribute) {
  const AttributeValue* const value = file.attribute(attribute);
  const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr) return {};
  if (const json list = json::parse(*text, nullptr, false); list.is_array()) {
    const bool all = std::all_of(list.begin(), list.end(), [](const json& name) { return name.is_string(); });
    return all ? list.get<std::vector<std::string>>() : std::vector<std::string>();
  }
  std::vector<std::string> names;
  std::istringstream parts(*text);
  for (std::string name; std::getline(parts, name, ',');) names.push_back(name);
  return names;
}

}  // namespace

std::optional<NamedColumn> names_beside(const ResultsReader& file, const ColumnSpec& column) {
  if (column.extent != ColumnSpec::Extent::kSamples) return std::nullopt;
  const std::string& path = column.path;
  const bool small = column.type == ColumnType::kU8, signed_number = column.type == ColumnType::kI32;
  if (const auto found = fixed_names().find(path); found != fixed_names().end() && small)
    return NamedColumn{last_name(path) + "_name", path, found->second, false, ""};
  if ((path == "/judge/verdict" || path == "/judge/combined") && signed_number) {
    const ColumnSpec* const parse = path == "/judge/verdict" ? file.find("/judge/parse") : nullptr;
    const bool guarded = parse != nullptr && parse->type == ColumnType::kU8 && parse->width == 0 &&
                         parse->extent == ColumnSpec::Extent::kSamples;
    return NamedColumn{last_name(path) + "_name", path, names_of(file, "verdicts"), false,
                       guarded ? "/judge/parse" : ""};
  }
  if (path == "/score/value" && column.width > 1)
    return NamedColumn{"labels", path, names_of(file, "labels"), true, ""};
  if (path == "/evaluate/correct") return NamedColumn{"methods", path, names_of(file, "methods"), true, ""};
  return std::nullopt;
}

json names_in_row(const ResultsReader& file, const NamedColumn& named, std::uint64_t sample) {
  if (named.of_places) return named.names;
  if (!named.sound_where_zero.empty() && file.rows<std::uint8_t>(named.sound_where_zero, sample, 1)[0] != 0)
    return nullptr;
  const ColumnSpec& column = *file.find(named.path);
  const std::uint64_t count = std::max<std::uint64_t>(1, column.width);
  std::vector<std::int64_t> numbers(count);
  if (column.type == ColumnType::kU8) {
    std::vector<std::uint8_t> row(count);
    file.read(named.path, sample, std::as_writable_bytes(std::span(row)));
    std::copy(row.begin(), row.end(), numbers.begin());
  } else {
    std::vector<std::int32_t> row(count);
    file.read(named.path, sample, std::as_writable_bytes(std::span(row)));
    std::copy(row.begin(), row.end(), numbers.begin());
  }
  json names = json::array();
  for (const std::int64_t number : numbers) {
    const bool known = number >= 0 && number < static_cast<std::int64_t>(named.names.size());
    names.push_back(known ? json(named.names[static_cast<std::size_t>(number)]) : json());
  }
  return column.width == 0 ? names[0] : names;
}

bool holds_json(const ColumnSpec& column) { return column.type == ColumnType::kText && column.units == "JSON"; }

std::string ExportedNames::name_of(const std::string& path, std::string name) {
  if (path.starts_with("/record/") && std::find(taken_.begin(), taken_.end(), name) != taken_.end())
    name = "record_" + name;
  taken_.push_back(name);
  return name;
}

}  // namespace magister
