// See results_fields.h. Names of verdicts are those of the root attribute `verdicts`.
#include "io/dataset/results_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>
#include <type_traits>

#include "io/results/columns.h"
#include "io/results/export_names.h"
#include "magister/core/error.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// The number that the shortest decimal of a float32 names, as exports write it: 0.7, not 0.699999988079071. So a rule
// ">= 0.7" keeps a value that was stored as 0.7.
double as_written(float value) {
  std::array<char, 64> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

template <typename T>
ordered_json number_of(const ResultsReader& file, const ColumnSpec& column, std::uint64_t sample) {
  const T value = file.rows<T>(column.path, sample, 1)[0];
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(value) ? ordered_json(as_written(value)) : nullptr;
  return value;
}

std::vector<std::string> verdict_names(const ResultsReader& file) {
  const AttributeValue* const value = file.attribute("verdicts");
  const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  std::vector<std::string> names;
  std::istringstream parts(text == nullptr ? "" : *text);
  for (std::string name; std::getline(parts, name, ',');) names.push_back(name);
  return names;
}

// The spelling in which a rule compares a value: true, 3, 0.5, the text itself; null is "null".
std::string spelling(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::optional<double> as_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool fits(const ordered_json& value, const std::string& relation, const std::string& wanted) {
  const std::string seen = spelling(value);
  if (relation == "=" || relation == "!=") return (seen == wanted) == (relation == "=");
  const std::optional<double> left = as_number(seen), right = as_number(wanted);
  return left && right && (relation == ">=" ? *left >= *right : *left <= *right);
}

}  // namespace

std::string sample_key(const ResultsReader& file, std::uint64_t sample) {
  std::string key(file.find("/samples/key")->width, '\0');
  file.read("/samples/key", sample, std::as_writable_bytes(std::span(key)));
  key.resize(key.find_last_not_of('\0') + 1);
  return key;
}

ResultsFields::ResultsFields(const ResultsReader& file, const std::vector<std::pair<std::string, std::string>>& keep)
    : file_(file) {
  const std::vector<const PlacedColumn*> columns = file_.columns().unit_columns();
  const auto add_all = [&](bool of_records) {
    for (const PlacedColumn* const column : columns) {
      const std::string& path = column->spec.path;
      if (path.starts_with("/samples/") || path.starts_with(kRecordGroup) != of_records) continue;
      std::string name = column_name(path);
      const bool taken = name == "key" || std::any_of(fields_.begin(), fields_.end(),
                                                      [&](const Field& field) { return field.name == name; });
      add(taken ? "record_" + name : name, column->spec);
    }
  };
  add_all(false);
  add_all(true);
  std::vector<std::string> names;
  for (const Field& field : fields_) names.push_back(field.name);
  for (const auto& [name, written] : keep) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string nearest = nearest_name(name, names);
      fail(ExitCode::kData, "{}: dataset.keep names the field \"{}\", which its samples do not have (they have {}); {}",
           printable(file_.path(), 4096), printable(name, 80),
           printable(fmt::format("{}", fmt::join(names, ", ")), 400),
           nearest.empty() ? "name one of them" : fmt::format("did you mean \"{}\"?", printable(nearest)));
    }
    Rule rule{static_cast<std::size_t>(found - names.begin()), "=", written};
    for (const char* const relation : {"!=", ">=", "<="}) {
      if (!written.starts_with(relation)) continue;
      const std::size_t begin = written.find_first_not_of(' ', std::strlen(relation));
      rule.relation = relation;
      rule.value = begin == std::string::npos ? "" : written.substr(begin);
    }
    rules_.push_back(std::move(rule));
  }
}

// Rows of tokens and lists of numbers are no fields.
void ResultsFields::add(const std::string& name, const ColumnSpec& column) {
  const bool is_text = column.type == ColumnType::kText || column.type == ColumnType::kUtf8;
  if (column.extent != ColumnSpec::Extent::kSamples || (!is_text && column.width > 0)) return;
  Field field{name, &column};
  if (is_text) field.text = std::make_unique<ResultsTextColumn>(file_, column.path);
  if (column.type == ColumnType::kI32 && (name == "verdict" || name == "combined")) field.names = verdict_names(file_);
  fields_.push_back(std::move(field));
  if (name != "finish_reason" || column.type != ColumnType::kU8) return;
  fields_.push_back({.name = "finished", .column = &column, .is_finished = true});
}

ordered_json ResultsFields::number(const ColumnSpec& column, std::uint64_t sample) const {
  switch (column.type) {
    case ColumnType::kU8:
      return number_of<std::uint8_t>(file_, column, sample);
    case ColumnType::kI32:
      return number_of<std::int32_t>(file_, column, sample);
    case ColumnType::kU32:
      return number_of<std::uint32_t>(file_, column, sample);
    case ColumnType::kU64:
      return number_of<std::uint64_t>(file_, column, sample);
    case ColumnType::kF32:
      return number_of<float>(file_, column, sample);
    default:
      return nullptr;
  }
}

ordered_json ResultsFields::value(Field& field, std::uint64_t sample) {
  if (field.text) {
    std::string text = field.text->text(sample);
    if (!holds_json(*field.column)) return text;
    ordered_json parsed = ordered_json::parse(text, nullptr, false);
    return parsed.is_discarded() ? ordered_json(std::move(text)) : parsed;
  }
  const ordered_json code = number(*field.column, sample);
  if (field.is_finished) return code == 0;
  if (field.names.empty()) return code;
  const auto at = code.get<std::int64_t>();
  if (at < 0 || at >= static_cast<std::int64_t>(field.names.size())) return nullptr;
  return field.names[static_cast<std::size_t>(at)];
}

ordered_json ResultsFields::of(std::uint64_t sample) {
  ordered_json record = {{"key", sample_key(file_, sample)}};
  for (Field& field : fields_) record[field.name] = value(field, sample);
  return record;
}

bool ResultsFields::is_kept(std::uint64_t sample) {
  return std::all_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return fits(value(fields_[rule.field], sample), rule.relation, rule.value);
  });
}

}  // namespace magister
