// Paths have the form of JavaScript and jq, without quotes: a name is everything up to the next '.' or '['.
#include "magister/io/dataset/field_path.h"

#include <charconv>

#include "magister/core/error.h"

namespace magister {

using nlohmann::ordered_json;

std::optional<FieldPath> parse_field_path(const std::string& field) {
  FieldPath path;
  std::size_t at = 0;
  while (at < field.size()) {
    if (field[at] == '[') {
      const std::size_t close = field.find(']', at);
      std::int64_t index = 0;
      if (path.empty() || close == std::string::npos) return std::nullopt;
      const char* const end = field.data() + close;
      const auto [last, error] = std::from_chars(field.data() + at + 1, end, index);
      if (error != std::errc() || last != end) return std::nullopt;
      path.emplace_back(index);
      at = close + 1;
      continue;
    }
    if (!path.empty() && field[at++] != '.') return std::nullopt;
    const std::size_t end = std::min(field.find_first_of(".[", at), field.size());
    if (end == at) return std::nullopt;
    path.emplace_back(field.substr(at, end - at));
    at = end;
  }
  if (path.size() < 2) return std::nullopt;
  return path;
}

namespace {

std::string names_of(const ordered_json& object) {
  std::string names;
  for (const auto& [name, value] : object.items()) names += (names.empty() ? "" : ", ") + printable(name, 40);
  return names.empty() ? "none" : printable(names);
}

// Goes one step down; null with the reason in `missing`.
const ordered_json* step(const ordered_json& value, const std::variant<std::string, std::int64_t>& part,
                         std::string& missing) {
  if (const auto* name = std::get_if<std::string>(&part)) {
    if (!value.is_object()) {
      missing = fmt::format("\"{}\" is looked for in {}, which is no object", printable(*name, 80), value.type_name());
      return nullptr;
    }
    if (const auto found = value.find(*name); found != value.end()) return &*found;
    missing = fmt::format("there is no \"{}\" in an object that has {}", printable(*name, 80), names_of(value));
    return nullptr;
  }
  const std::int64_t index = std::get<std::int64_t>(part);
  const auto size = value.is_array() ? static_cast<std::int64_t>(value.size()) : 0;
  const std::int64_t place = index < 0 ? size + index : index;
  if (value.is_array() && place >= 0 && place < size) return &value[static_cast<std::size_t>(place)];
  missing = value.is_array() ? fmt::format("there is no entry {} in a list of {}", index, size)
                             : fmt::format("entry {} is looked for in {}, which is no list", index, value.type_name());
  return nullptr;
}

}  // namespace

const ordered_json* find_field(const ordered_json& record, const std::string& field, std::string& missing) {
  if (const auto found = record.find(field); found != record.end()) return &*found;
  const auto path = parse_field_path(field);
  if (!path) {
    missing = fmt::format("the record has {}", names_of(record));
    return nullptr;
  }
  const ordered_json* value = &record;
  for (const auto& part : *path) {
    value = step(*value, part, missing);
    if (value == nullptr) break;
  }
  return value;
}

}  // namespace magister
