// Rewrites a JSON schema into a form that the grammar library reads correctly: the same texts match, written as
// json.dumps writes them.
#pragma once

#include <string>

namespace magister {

// schema: checked by check_schema_keywords(). Patterns become plain expressions (plain_regex). Objects and lists in
// const and enum become schemas with one value each, so that they have the same separators as all others. References
// whose names have escapes point to a definition whose name has none. Bounds of integers become integers. Keywords
// without effect (`uniqueItems: false`, names that begin with "x-") are removed. Throws Error(kConfig) with the place
// of a bad pattern; `name` begins the message.
std::string plain_schema(const std::string& schema, const std::string& name);

}  // namespace magister
