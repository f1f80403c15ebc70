// Kinds of values are told apart by their first character.
#include "tasks/generate/text_readings.h"

#include <nlohmann/json.hpp>

#include "tasks/generate/schema_keywords.h"

namespace magister {
namespace {

using nlohmann::json;

enum Kind : unsigned { kText = 1, kNumber = 2, kObject = 4, kArray = 8, kTruth = 16, kNull = 32, kAny = 63 };
constexpr unsigned kHoldsTexts = kText | kObject | kArray;

unsigned kind_of_value(const json& value) {
  if (value.is_string()) return kText;
  if (value.is_number()) return kNumber;
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  return value.is_boolean() ? kTruth : kNull;
}

unsigned kind_of_type(const json& type) {
  if (type == "string") return kText;
  if (type == "number" || type == "integer") return kNumber;
  if (type == "object") return kObject;
  if (type == "array") return kArray;
  if (type == "boolean") return kTruth;
  return type == "null" ? kNull : kAny;
}

class Walk {
 public:
  explicit Walk(const json& root) : root_(root) {}

  bool one_reading(const json& schema, int depth = 0) const {
    if (depth > kMaxSchemaDepth) return false;
    if (schema.is_array()) return all_of(schema, depth);
    if (!schema.is_object()) return true;
    for (const char* key : {"anyOf", "oneOf"}) {
      if (!schema.contains(key)) continue;
      unsigned seen = 0;
      for (const json& part : schema.at(key)) {
        const unsigned kinds = kinds_of(part, 0);
        if ((seen & kinds & kHoldsTexts) != 0) return false;
        seen |= kinds;
      }
    }
    for (const auto& [key, inner] : schema.items()) {
      if (key != "const" && key != "enum" && key != "default" && key != "examples" && !all_of(inner, depth))
        return false;
    }
    return true;
  }

 private:
  bool all_of(const json& value, int depth) const {
    if (value.is_object() && !one_reading(value, depth + 1)) return false;
    if (!value.is_structured()) return true;
    for (const json& inner : value) {
      if (inner.is_structured() && !one_reading(inner, depth + 1)) return false;
    }
    return true;
  }

  unsigned kinds_of(const json& schema, int depth) const {
    if (schema.is_boolean()) return schema.get<bool>() ? unsigned{kAny} : 0;
    if (!schema.is_object() || depth > kMaxSchemaDepth) return kAny;
    const auto any_of = [&](const json& all, const auto& kind) {
      unsigned kinds = 0;
      for (const json& one : all) kinds |= kind(one);
      return kinds;
    };
    const auto of_schema = [&](const json& one) { return kinds_of(one, depth + 1); };
    if (schema.contains("$ref")) return kinds_of_reference(schema.at("$ref"), depth);
    if (schema.contains("const")) return kind_of_value(schema.at("const"));
    if (schema.contains("enum")) return any_of(schema.at("enum"), kind_of_value);
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      if (schema.contains(key)) return any_of(schema.at(key), of_schema);
    }
    if (!schema.contains("type")) return kAny;
    const json& type = schema.at("type");
    return type.is_array() ? any_of(type, kind_of_type) : kind_of_type(type);
  }

  unsigned kinds_of_reference(const json& reference, int depth) const {
    if (!reference.is_string() || !reference.get<std::string>().starts_with("#")) return kAny;
    try {
      return kinds_of(root_.at(json::json_pointer(reference.get<std::string>().substr(1))), depth + 1);
    } catch (const json::exception&) {
      return kAny;
    }
  }

  const json& root_;
};

}  // namespace

bool has_one_reading(const std::string& schema) {
  const json parsed = json::parse(schema);
  return Walk(parsed).one_reading(parsed);
}

}  // namespace magister
