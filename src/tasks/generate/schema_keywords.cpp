// Walks over all places of a schema that hold schemas. Sources: JSON Schema 2020-12; json_schema_converter.cc of
// xgrammar for the keywords that it reads.
#include "tasks/generate/schema_keywords.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"

namespace magister {
namespace {

using nlohmann::json;

constexpr std::array kAnnotations = {"title",     "description", "default", "examples", "deprecated", "readOnly",
                                     "writeOnly", "$comment",    "$schema", "$id",      "$defs",      "definitions"};
// The library reads only one of these and ignores all keywords next to it.
constexpr std::array kAlone = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
// The meaning of these keywords depends on the type; without one, the library assumes a type.
constexpr std::array kRead = {"type",
                              "format",
                              "properties",
                              "required",
                              "additionalProperties",
                              "patternProperties",
                              "propertyNames",
                              "minProperties",
                              "maxProperties",
                              "items",
                              "prefixItems",
                              "minItems",
                              "maxItems",
                              "unevaluatedItems",
                              "unevaluatedProperties",
                              "minLength",
                              "maxLength",
                              "pattern",
                              "minimum",
                              "maximum",
                              "exclusiveMinimum",
                              "exclusiveMaximum",
                              "multipleOf"};

template <typename Names>
bool has(const Names& names, const std::string& key) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

// True if the keyword excludes no text. Vendors' keywords begin with "x-".
bool says_nothing(const std::string& key, const json& value) {
  return has(kAnnotations, key) || key.starts_with("x-") || (key == "uniqueItems" && value == false);
}

class Walk {
 public:
  explicit Walk(const std::string& name) : name_(name) {}

  void schema(const json& value, const std::string& place, int depth) const {
    MAGISTER_CHECK(depth < kMaxSchemaDepth, ExitCode::kConfig,
                   "{}: schemas inside schemas {} deep (too deep); write it flatter", name_, kMaxSchemaDepth);
    if (value.is_boolean()) return;
    MAGISTER_CHECK(value.is_object(), ExitCode::kConfig,
                   "{}: {} is not a schema (an object is one, or true or false); fix it", name_, shown(place));
    const auto alone = std::find_if(kAlone.begin(), kAlone.end(), [&](const char* key) { return value.contains(key); });
    const bool untyped = value.contains("type") &&
                         (value.at("type").is_array() ? value.at("type").empty() : !value.at("type").is_string());
    MAGISTER_CHECK(!untyped, ExitCode::kConfig, "{}: {} at {} is not a type (a name or a list of names is one); fix it",
                   name_, printable(value.at("type").dump()), shown(place));
    for (const char* key : {"const", "enum"}) {
      if (value.contains(key)) check_numbers(value.at(key), place + "/" + key);
    }
    for (const auto& [key, inner] : value.items()) {
      if (says_nothing(key, inner)) continue;
      if (alone != kAlone.end()) {
        const bool typed = key == "type" && (*alone == std::string_view("enum") || *alone == std::string_view("const"));
        MAGISTER_CHECK(key == *alone || typed, ExitCode::kConfig,
                       "{}: {} next to {} at {} (only {} would be enforced); write what both mean as one schema", name_,
                       printable(key), *alone, shown(place), *alone);
      } else {
        MAGISTER_CHECK(has(kRead, key), ExitCode::kConfig,
                       "{}: the keyword {} at {} is not supported (texts that break it would "
                       "come out); write the schema without it",
                       name_, printable(key), shown(place));
      }
      inside(key, inner, place + "/" + key, depth + 1);
    }
    if (alone == kAlone.end()) {
      check_together(value, place);
    } else if (value.contains("type")) {
      check_values(value, place);
    }
    for (const char* key : {"$defs", "definitions"}) {
      if (value.contains(key)) inside("properties", value.at(key), place + "/" + key, depth + 1);
    }
  }

 private:
  // Refuses keywords that the library enforces one by one but not together.
  void check_together(const json& value, const std::string& place) const {
    const auto refuse = [&](const char* what, const char* why) {
      fail(ExitCode::kConfig, "{}: {} at {} ({}); write the schema without that", name_, what, shown(place), why);
    };
    for (const auto& [key, inner] : value.items()) {
      const bool typeless = !value.contains("type") && has(kRead, key) && key != "format";
      MAGISTER_CHECK(!typeless, ExitCode::kConfig,
                     "{}: {} without a type at {} (it would be enforced for one type only); add the type", name_,
                     printable(key), shown(place));
    }
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      if (value.contains(key)) check_bound(value.at(key), place + "/" + key);
    }
    if (value.contains("pattern") && value.contains("format"))
      refuse("pattern with format", "only one would be enforced");
    const bool free_names = value.contains("patternProperties") || value.contains("propertyNames") ||
                            (value.contains("additionalProperties") && value.at("additionalProperties") != false);
    if (value.contains("properties") && (value.contains("patternProperties") || value.contains("propertyNames"))) {
      refuse("properties with patternProperties or propertyNames", "only one would be enforced");
    }
    if (free_names && value.contains("minProperties") && value.at("minProperties") != 0 &&
        value.at("minProperties") != 1) {
      refuse("minProperties with names of the text's choice", "the same name twice would count as two");
    }
    // The library distinguishes free names from the given ones character by character, but a character may be an
    // escape.
    const json properties = value.value("properties", json::object());
    for (const auto& [property, inner] : properties.items()) {
      const bool escaped = std::any_of(property.begin(), property.end(), [](char c) {
        return c == '"' || c == '\\' || (c >= 0 && c < 0x20) || c == 0x7F;
      });
      if (free_names && escaped)
        refuse("free names with one that JSON writes with an escape", "the same name could occur twice");
    }
    if (!value.contains("required")) return;
    MAGISTER_CHECK(value.at("required").is_array(), ExitCode::kConfig,
                   "{}: required at {} is not a list of names; fix it", name_, shown(place));
    for (const json& name : value.at("required")) {
      const bool known =
          name.is_string() && value.contains("properties") && value.at("properties").contains(name.get<std::string>());
      MAGISTER_CHECK(known, ExitCode::kConfig,
                     "{}: required names {} at {}, which properties does not (it would be left out); add "
                     "its schema there",
                     name_, printable(name.dump()), shown(place));
    }
  }

  // The library reads numbers beyond 64 bits approximately and writes the approximation.
  void check_numbers(const json& value, const std::string& place) const {
    constexpr double kMost = 9.2e18;
    for (const json& one : value.is_structured() ? value : json::array({value})) {
      if (one.is_structured()) {
        check_numbers(one, place);
        continue;
      }
      MAGISTER_CHECK(!one.is_number() || std::abs(one.get<double>()) < kMost, ExitCode::kConfig,
                     "{}: the number {} at {} is beyond 64 bits (it would be written as another); write it as a text",
                     name_, printable(one.dump()), shown(place));
    }
  }

  // The library reads bounds as doubles.
  void check_bound(const json& value, const std::string& place) const {
    const bool rounded = value.is_number_integer() && fmt::format("{:.0f}", value.get<double>()) != value.dump();
    MAGISTER_CHECK(
        !rounded, ExitCode::kConfig,
        "{}: the bound {} at {} is no double (the nearest one would be enforced); write one that is, such as {:.0f}",
        name_, printable(value.dump()), shown(place), value.get<double>());
  }

  // Compares enum and const with the type next to them: the library writes their values and ignores the type.
  void check_values(const json& value, const std::string& place) const {
    const json types = value.at("type").is_array() ? value.at("type") : json::array({value.at("type")});
    const json values = value.contains("enum") ? value.at("enum") : json::array({value.value("const", json())});
    for (const json& one : values) {
      const bool whole =
          one.is_number_integer() || (one.is_number_float() && one.get<double>() == std::floor(one.get<double>()));
      const std::string type = one.is_number() ? "number" : one.type_name();  // nlohmann's names are the schema's
      bool right = false;
      for (const json& wanted : types) right |= wanted == type || (wanted == "integer" && whole);
      MAGISTER_CHECK(
          right, ExitCode::kConfig,
          "{}: the value {} at {} is not of the type given with it (no text could match with it); remove one of them",
          name_, printable(one.dump()), shown(place));
    }
  }

  static std::string shown(const std::string& place) { return place.empty() ? "the top" : printable(place); }

  // Checks the schemas under one keyword.
  void inside(const std::string& key, const json& value, const std::string& place, int depth) const {
    static constexpr std::array kMaps = {"properties", "patternProperties"};
    static constexpr std::array kLists = {"anyOf", "oneOf", "allOf", "prefixItems"};
    static constexpr std::array kOne = {"items", "additionalProperties", "propertyNames", "unevaluatedItems",
                                        "unevaluatedProperties"};
    if (has(kOne, key)) return schema(value, place, depth);
    if (has(kMaps, key)) {
      MAGISTER_CHECK(value.is_object(), ExitCode::kConfig,
                     "{}: {} is not an object (names and schemas are expected); fix it", name_, shown(place));
      for (const auto& [name, inner] : value.items()) schema(inner, place + "/" + name, depth);
    }
    if (has(kLists, key)) {
      MAGISTER_CHECK(value.is_array() && !value.empty(), ExitCode::kConfig,
                     "{}: {} is not a list of schemas (at least one is "
                     "expected); fix it",
                     name_, shown(place));
      for (std::size_t i = 0; i < value.size(); ++i) schema(value[i], place + "/" + std::to_string(i), depth);
    }
  }

  const std::string& name_;
};

}  // namespace

std::optional<std::string> pointer_of_reference(std::string_view reference) {
  if (!reference.starts_with('#')) return std::nullopt;
  std::string pointer;
  for (std::size_t at = 1; at < reference.size(); ++at) {
    unsigned byte = 0;
    const char* const digits = reference.data() + at + 1;
    if (reference[at] == '%' && at + 2 < reference.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      pointer += static_cast<char>(byte);
      at += 2;
    } else {
      pointer += reference[at];
    }
  }
  return pointer;
}

void check_schema_keywords(std::string_view schema, const std::string& name) {
  json parsed;
  try {
    parsed = json::parse(schema);
  } catch (const json::exception& error) {
    fail(ExitCode::kConfig, "{}: {} (a schema is JSON); fix it", name, printable(error.what()));
  }
  Walk(name).schema(parsed, "", 0);
}

}  // namespace magister
