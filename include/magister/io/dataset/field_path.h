// Fields inside fields: "a.b[0].c" is entry 0 of list b of object a, and there c; [-1] is the last entry. A field of exactly this
// name comes first, so that names with dots or brackets stay what they are.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace magister {

using FieldPath = std::vector<std::variant<std::string, std::int64_t>>;  // names and entries; begins with a name

// nullopt: a plain name, or not of this form.
std::optional<FieldPath> parse_field_path(const std::string& field);

// The value of a field in a record (an object), null where there is none. `missing` then says how far the path leads:
// "\"b\" of \"a.b\" is not in the object, which has x, y".
const nlohmann::ordered_json* find_field(const nlohmann::ordered_json& record, const std::string& field,
                                         std::string& missing);

}  // namespace magister
