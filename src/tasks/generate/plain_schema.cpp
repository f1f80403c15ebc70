// One walk that makes a new schema from the old one, in the order of its keys.
#include "tasks/generate/plain_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/engine/regex_syntax.h"
#include "tasks/generate/schema_keywords.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

// A list or an object with something in it: the library would write it without spaces.
bool has_parts(const Json& value) { return value.is_structured() && !value.empty(); }

class Rewriter {
 public:
  explicit Rewriter(const std::string& name) : name_(name) {}

  Json schema(const Json& given, const std::string& place) const {
    if (!given.is_object()) return given;
    Json made = Json::object();
    for (const auto& [key, value] : given.items()) {
      const std::string inner = place + "/" + key;
      if (key.starts_with("x-") || (key == "uniqueItems" && value == false)) continue;
      if ((key == "const" && has_parts(value)) ||
          (key == "enum" && value.is_array() && std::any_of(value.begin(), value.end(), has_parts))) {
        return values(given, key == "const" ? Json::array({value}) : value, inner);
      }
      made[key] = part(key, value, inner);
    }
    return made;
  }

 private:
  Json part(const std::string& key, const Json& value, const std::string& place) const {
    if (key == "pattern" && value.is_string()) return pattern(value.get<std::string>(), place);
    if (key == "patternProperties" && value.is_object()) {
      check_patterns(value, place);
      Json made = Json::object();
      for (const auto& [name, inner] : value.items()) {
        const std::string plain = pattern(name, place + "/" + name);
        MAGISTER_CHECK(!made.contains(plain), ExitCode::kConfig,
                       "{}: {} says the same as a pattern before it (which of the two counts is ambiguous); remove one",
                       name_, printable(place + "/" + name));
        made[plain] = schema(inner, place + "/" + name);
      }
      return made;
    }
    const bool map = key == "properties" || key == "$defs" || key == "definitions";
    const bool list = key == "anyOf" || key == "oneOf" || key == "allOf" || key == "prefixItems";
    const bool one = key == "items" || key == "additionalProperties" || key == "propertyNames" ||
                     key == "unevaluatedItems" || key == "unevaluatedProperties";
    if (one) return schema(value, place);
    if ((map && value.is_object()) || (list && value.is_array())) {
      Json made = value;
      for (auto& [name, inner] : made.items()) inner = schema(inner, place + "/" + name);
      return made;
    }
    return value;
  }

  // A name that two patterns match would be held to one of their schemas, and has to match both.
  void check_patterns(const Json& patterns, const std::string& place) const {
    for (auto one = patterns.begin(); one != patterns.end(); ++one) {
      pattern(one.key(), place + "/" + one.key());  // refuses what is none
      for (auto other = patterns.begin(); other != one; ++other) {
        MAGISTER_CHECK(one.value() == other.value() || !may_share_a_text(one.key(), other.key()), ExitCode::kConfig,
                       "{}: a name can match both {} and {} at {} (only one of their schemas would be kept to); write "
                       "patterns that no name matches both",
                       name_, printable(other.key()), printable(one.key()), printable(place));
      }
    }
  }

  std::string pattern(const std::string& regex, const std::string& place) const {
    try {
      return "^" + group(plain_regex(regex, RegexPlace::kJsonString)) + "$";
    } catch (const std::runtime_error& error) {
      fail(ExitCode::kConfig, "{}: {}: {} (no text could be checked against it); fix it", name_, printable(place),
           printable(error.what()));
    }
  }

  static std::string group(const std::string& regex) {
    return regex.find('|') == std::string::npos ? regex : "(?:" + regex + ")";
  }

  // const and enum with what stands beside them, without the type: check_schema_keywords() has compared it.
  Json values(const Json& given, const Json& values, const std::string& place) const {
    Json made = Json::object();
    for (const char* key : {"$defs", "definitions"}) {
      if (given.contains(key)) made[key] = part(key, given.at(key), place);
    }
    made["anyOf"] = Json::array();
    for (const Json& value : values) made["anyOf"].push_back(exactly(value, 0));
    return made;
  }

  Json exactly(const Json& value, int depth) const {
    MAGISTER_CHECK(depth < kMaxSchemaDepth, ExitCode::kConfig,
                   "{}: a const or enum {} levels deep (too deep); write it flatter", name_, kMaxSchemaDepth);
    if (!has_parts(value)) return {{"const", value}};
    Json parts = value;
    for (Json& inner : parts) inner = exactly(inner, depth + 1);
    if (value.is_array())
      return {{"type", "array"}, {"prefixItems", parts}, {"items", false}, {"minItems", value.size()}};
    Json names = Json::array();
    for (const auto& [name, inner] : value.items()) names.push_back(name);
    return {{"type", "object"}, {"properties", parts}, {"required", names}, {"additionalProperties", false}};
  }

  const std::string& name_;
};

}  // namespace

std::string plain_schema(const std::string& schema, const std::string& name) {
  return Rewriter(name).schema(Json::parse(schema), "").dump();
}

}  // namespace magister
