// Names that depend on the run come from the file's root attributes, fixed ones from the table of the kind.
#include "io/results/export_names.h"

#include <algorithm>
#include <sstream>

namespace magister {
namespace {

using nlohmann::json;

std::vector<std::string> separated(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream parts(text);
  for (std::string name; std::getline(parts, name, ',');) names.push_back(name);
  return names;
}

// Reads a root attribute: names separated by commas, or a JSON list of names.
std::vector<std::string> names_of(const ResultsReader& file, const char* attribute) {
  const AttributeValue* const value = file.attribute(attribute);
  const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr) return {};
  const json list = json::parse(*text, nullptr, false);
  if (!list.is_array()) return separated(*text);
  const bool all = std::all_of(list.begin(), list.end(), [](const json& name) { return name.is_string(); });
  return all ? list.get<std::vector<std::string>>() : std::vector<std::string>();
}

// True for a column with one u8 per sample.
bool is_guard(const ColumnSpec* column) {
  return column != nullptr && column->type == ColumnType::kU8 && column->width == 0 &&
         column->extent == ColumnSpec::Extent::kSamples;
}

}  // namespace

std::string column_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::optional<NamedColumn> names_beside(const ResultsReader& file, const ExportedColumns& columns,
                                        const ColumnSpec& column) {
  const auto found = std::find_if(columns.names.begin(), columns.names.end(),
                                  [&](const ColumnNames& one) { return column.path == one.path; });
  if (found == columns.names.end() || column.extent != ColumnSpec::Extent::kSamples) return std::nullopt;
  const bool of_places = found->of_places != nullptr;
  const bool fits = of_places ? column.width > 0 : column.type == ColumnType::kU8 || column.type == ColumnType::kI32;
  if (!fits) return std::nullopt;
  const bool guarded = found->sound_where_zero != nullptr && is_guard(file.find(found->sound_where_zero));
  return NamedColumn{of_places ? found->of_places : column_name(column.path) + "_name", column.path,
                     found->names != nullptr ? separated(found->names) : names_of(file, found->attribute), of_places,
                     guarded ? found->sound_where_zero : ""};
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
  if (path.starts_with(kRecordGroup) && std::find(taken_.begin(), taken_.end(), name) != taken_.end())
    name = "record_" + name;
  taken_.push_back(name);
  return name;
}

}  // namespace magister
