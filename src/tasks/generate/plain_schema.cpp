// Makes the new schema from the old one in one walk, in the order of its keys.
#include "tasks/generate/plain_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "magister/core/error.h"
#include "magister/engine/regex_syntax.h"
#include "tasks/generate/schema_keywords.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

// True for a list or an object that is not empty: the library would write it without spaces.
bool has_parts(const Json& value) { return value.is_structured() && !value.empty(); }

constexpr std::array kCounts = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"};
constexpr std::array kBounds = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
constexpr double kMostWhole = 9e18;  // a bound beyond it stays unchanged

// In JSON Schema 2.0 is an integer; the library accepts only 2.
Json whole_count(const Json& value) {
  const bool is_whole = value.is_number_float() && std::floor(value.get<double>()) == value.get<double>() &&
                        std::abs(value.get<double>()) < kMostWhole;
  return is_whole ? Json(static_cast<std::int64_t>(value.get<double>())) : value;
}

// Replaces bounds of an integer that have a fraction, or could have one, by the equivalent integers.
void make_bounds_whole(Json& schema) {
  if (!schema.contains("type")) return;
  Json& type = schema["type"];
  const auto holds = [&](const char* name) {
    return type == name || (type.is_array() && std::find(type.begin(), type.end(), name) != type.end());
  };
  bool may_have_fraction = false;
  for (const char* const bound : kBounds) {
    if (!schema.contains(bound)) continue;
    const Json& value = schema[bound];
    if (!value.is_number() || std::abs(value.get<double>()) >= kMostWhole) return;
    may_have_fraction = may_have_fraction || value.is_number_float();
  }
  if (!may_have_fraction || !holds("integer")) return;
  if (holds("number")) {  // every integer is a number
    type.erase(std::find(type.begin(), type.end(), "integer"));
    return;
  }
  std::optional<std::int64_t> least, most;
  const auto whole = [](const Json& value, bool down) {
    if (!value.is_number_float()) return value.get<std::int64_t>();
    return static_cast<std::int64_t>(down ? std::floor(value.get<double>()) : std::ceil(value.get<double>()));
  };
  if (schema.contains("minimum")) least = whole(schema["minimum"], false);
  if (schema.contains("maximum")) most = whole(schema["maximum"], true);
  if (schema.contains("exclusiveMinimum"))
    least =
        std::max(least.value_or(std::numeric_limits<std::int64_t>::min()), whole(schema["exclusiveMinimum"], true) + 1);
  if (schema.contains("exclusiveMaximum"))
    most =
        std::min(most.value_or(std::numeric_limits<std::int64_t>::max()), whole(schema["exclusiveMaximum"], false) - 1);
  for (const char* const bound : kBounds) schema.erase(bound);
  if (least) schema["minimum"] = *least;
  if (most) schema["maximum"] = *most;
}

class Rewriter {
 public:
  Rewriter(const Json& root, const std::string& name) : root_(root), name_(name) {}

  // The schema, and the definitions that its references need.
  Json whole() {
    Json made = schema(root_, "");
    for (std::size_t i = 0; i < references_.size(); ++i) {
      const std::string pointer = references_[i];
      made["$defs"][definition(i)] = schema(root_.at(Json::json_pointer(pointer)), pointer);
    }
    return made;
  }

 private:
  Json schema(const Json& given, const std::string& place) {
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
    make_bounds_whole(made);
    return made;
  }

  // Name of the definition for the i-th reference; the user's definitions do not have it.
  std::string definition(std::size_t i) const {
    std::string name = fmt::format("reference{}", i);
    while (root_.contains("$defs") && root_["$defs"].contains(name)) name += '_';
    return name;
  }

  // The library looks for names as they are written, without decoding escapes.
  Json reference(const std::string& given, const std::string& place) {
    const auto pointer = pointer_of_reference(given);
    if (!pointer || given.find_first_of("%~") == std::string::npos) return given;
    bool is_there = false;
    try {
      is_there = root_.contains(Json::json_pointer(*pointer));
    } catch (const Json::exception&) {  // not a pointer
    }
    MAGISTER_CHECK(is_there, ExitCode::kConfig, "{}: {} refers to {}, and there is no such place in the schema; fix it",
                   name_, printable(place), printable(given));
    const auto known = std::find(references_.begin(), references_.end(), *pointer);
    const auto index = static_cast<std::size_t>(known - references_.begin());
    if (known == references_.end()) references_.push_back(*pointer);
    return "#/$defs/" + definition(index);
  }

  Json part(const std::string& key, const Json& value, const std::string& place) {
    if (key == "pattern" && value.is_string()) return pattern(value.get<std::string>(), place);
    if (key == "$ref" && value.is_string()) return reference(value.get<std::string>(), place);
    if (std::find(kCounts.begin(), kCounts.end(), key) != kCounts.end()) return whole_count(value);
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

  // Refuses a name that could match two patterns: it must match both schemas, and the library would enforce only one.
  void check_patterns(const Json& patterns, const std::string& place) const {
    for (auto one = patterns.begin(); one != patterns.end(); ++one) {
      pattern(one.key(), place + "/" + one.key());  // throws if it is not an expression
      for (auto other = patterns.begin(); other != one; ++other) {
        MAGISTER_CHECK(one.value() == other.value() || !may_share_a_text(one.key(), other.key()), ExitCode::kConfig,
                       "{}: a name can match both {} and {} at {} (only one of their schemas would be enforced); write "
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

  // Replaces const and enum, with their definitions but without `type`: check_schema_keywords() has compared it.
  Json values(const Json& given, const Json& values, const std::string& place) {
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

  const Json& root_;
  const std::string& name_;
  std::vector<std::string> references_;  // pointers that are written with escapes, each once
};

}  // namespace

std::string plain_schema(const std::string& schema, const std::string& name) {
  const Json root = Json::parse(schema);
  return Rewriter(root, name).whole().dump();
}

}  // namespace magister
