// Kinds of values are distinguished by their first character.
#include "tasks/generate/text_readings.h"

#include <nlohmann/json.hpp>

#include "tasks/generate/schema_keywords.h"

namespace magister {
namespace {

using nlohmann::json;

enum FirstKind : unsigned {
  kTextKind = 1,
  kNumberKind = 2,
  kObjectKind = 4,
  kArrayKind = 8,
  kTruthKind = 16,
  kNullKind = 32,
  kAnyKind = 63
};
constexpr unsigned kHoldsTexts = kTextKind | kObjectKind | kArrayKind;

unsigned kind_of_value(const json& value) {
  if (value.is_string()) return kTextKind;
  if (value.is_number()) return kNumberKind;
  if (value.is_object()) return kObjectKind;
  if (value.is_array()) return kArrayKind;
  return value.is_boolean() ? kTruthKind : kNullKind;
}

unsigned kind_of_type(const json& type) {
  if (type == "string") return kTextKind;
  if (type == "number" || type == "integer") return kNumberKind;
  if (type == "object") return kObjectKind;
  if (type == "array") return kArrayKind;
  if (type == "boolean") return kTruthKind;
  return type == "null" ? kNullKind : kAnyKind;
}

class Readings {
 public:
  explicit Readings(const json& root) : root_(root) {}

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
    if (schema.is_boolean()) return schema.get<bool>() ? unsigned{kAnyKind} : 0;
    if (!schema.is_object() || depth > kMaxSchemaDepth) return kAnyKind;
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
    if (!schema.contains("type")) return kAnyKind;
    const json& type = schema.at("type");
    return type.is_array() ? any_of(type, kind_of_type) : kind_of_type(type);
  }

  unsigned kinds_of_reference(const json& reference, int depth) const {
    const auto pointer = reference.is_string() ? pointer_of_reference(reference.get<std::string>()) : std::nullopt;
    if (!pointer) return kAnyKind;
    try {
      return kinds_of(root_.at(json::json_pointer(*pointer)), depth + 1);
    } catch (const json::exception&) {
      return kAnyKind;
    }
  }

  const json& root_;
};

}  // namespace

bool has_one_reading(const std::string& schema) {
  const json parsed = json::parse(schema);
  return Readings(parsed).one_reading(parsed);
}

}  // namespace magister
