// Which JSON schemas can be kept to. The grammar library ignores keywords that it does not know, and those beside anyOf,
// $ref and the like; a text that comes out would then match the grammar and not the schema. So they are refused by name.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// Throws Error(kConfig) naming the keyword and its place as a JSON pointer. `name` begins the message. Local.
void check_schema_keywords(std::string_view schema, const std::string& name);

// How deep schemas, and the values of const and enum, may lie in each other: people write five levels; a walk that calls itself needs a bound.
constexpr int kMaxSchemaDepth = 100;

}  // namespace magister
