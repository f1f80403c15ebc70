// Which JSON schemas can be kept to. The grammar library ignores keywords that it does not know, and those beside anyOf,
// $ref and the like; a text that comes out would then match the grammar and not the schema. So they are refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace magister {

// Throws Error(kConfig) naming the keyword and its place as a JSON pointer. `name` begins the message. Local.
void check_schema_keywords(std::string_view schema, const std::string& name);

// A reference inside the schema ("#/$defs/a%20b") as the JSON pointer that it means ("/$defs/a b"), nothing where it is none. What stands behind
// the # is a part of a URI, whose characters may be written as % and two digits (RFC 6901, section 6).
std::optional<std::string> pointer_of_reference(std::string_view reference);

// How deep schemas, and the values of const and enum, may lie in each other: people write five levels; a walk that calls itself needs a bound.
constexpr int kMaxSchemaDepth = 100;

}  // namespace magister
