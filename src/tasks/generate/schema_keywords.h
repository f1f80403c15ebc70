// Checks that a JSON schema can be enforced. The grammar library ignores unknown keywords and keywords next to anyOf,
// $ref and similar ones, so a text could match the grammar and not the schema. Such schemas are refused, naming the
// keyword.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace magister {

// Throws Error(kConfig) naming the keyword and its place as a JSON pointer. `name` begins the message. Local.
void check_schema_keywords(std::string_view schema, const std::string& name);

// The JSON pointer ("/$defs/a b") of a reference inside the schema ("#/$defs/a%20b"); nullopt if it is not one. The
// part after # is a URI fragment: % and two hex digits encode a character (RFC 6901, section 6).
std::optional<std::string> pointer_of_reference(std::string_view reference);

// Maximum nesting depth of schemas and of the values of const and enum. People write about five levels; the limit
// bounds the recursion.
constexpr int kMaxSchemaDepth = 100;

}  // namespace magister
