// Paths to nested fields: "a.b[0].c" is field c of entry 0 of list b of object a; [-1] is the last entry. A field with
// exactly this name has precedence, so that names with dots or brackets still work.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace magister {

using FieldPath = std::vector<std::variant<std::string, std::int64_t>>;  // names and entries; begins with a name

// nullopt: a plain name, or not a path.
std::optional<FieldPath> parse_field_path(const std::string& field);

// The value of a field in a record (an object); nullptr if it does not exist. Then `missing` says why: there is no "b"
// in an object that has x, y.
const nlohmann::ordered_json* find_field(const nlohmann::ordered_json& record, const std::string& field,
                                         std::string& missing);

}  // namespace magister
