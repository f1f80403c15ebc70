// Creates and reads single values.
#include "text/jinja/value.h"

#include <bit>

namespace magister::jinja {

Value Value::real(double number) { return from_bits(Kind::kFloat, std::bit_cast<std::int64_t>(number)); }

double Value::as_real() const {
  return kind_ == Kind::kFloat ? std::bit_cast<double>(bits_) : static_cast<double>(bits_);
}

Value Value::text(std::string utf8) {
  auto object = std::make_shared<Text>();
  object->utf8 = std::move(utf8);
  return {Kind::kString, std::move(object)};
}

Value Value::big_integer(std::string digits) {
  auto object = std::make_shared<Text>();
  object->utf8 = std::move(digits);
  return {Kind::kBigInt, std::move(object)};
}

Value Value::markup(std::string utf8) {
  auto object = std::make_shared<Text>();
  object->utf8 = std::move(utf8);
  object->markup = true;
  return {Kind::kString, std::move(object)};
}

Value Value::undefined(std::string complaint) {
  auto object = std::make_shared<Text>();
  object->utf8 = std::move(complaint);
  return {Kind::kUndefined, std::move(object)};
}

const std::string& Value::as_text() const {
  static const std::string kNothing;
  return object_ == nullptr ? kNothing : object<Text>().utf8;
}

bool Value::is_markup() const { return kind_ == Kind::kString && object<Text>().markup; }

std::int64_t Range::count() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kBigInt:
      return "int beyond 64 bits";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return "dict view";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "value";
}
}  // namespace magister::jinja
