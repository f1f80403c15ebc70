// A JSON schema as the grammar library reads it rightly: the same texts match, written as json.dumps writes them.
#pragma once

#include <string>

namespace magister {

// schema: checked by check_schema_keywords(). Its patterns are written in plain expressions (plain_regex), its const and enum objects
// and lists as schemas with one value each, so that their separators are those of all others; references whose names are written with
// escapes lead to a definition under a name without, bounds of whole numbers are whole; keywords that change nothing
// (`uniqueItems: false`, names that begin with "x-") are left out. Throws Error(kConfig) with the place of a bad pattern; `name`
// begins the message.
std::string plain_schema(const std::string& schema, const std::string& name);

}  // namespace magister
