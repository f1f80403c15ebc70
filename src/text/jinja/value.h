// Values of the chat-template language, with Python's semantics. Lists, tuples and dicts never change once made (the
// reference environment forbids it too); only namespaces, iterators and loops have state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace magister::jinja {

class Runtime;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,
  kRange,
  kIterator,
  kNamespace,
  kCallable,
  kLoop
};

// The object that a value points to. `depth` is 1 + that of the deepest part. It is bounded when the object is made, so
// comparing, printing and destroying never recurse deeper.
struct Object {
  int depth = 1;
  virtual ~Object() = default;
};

class Value {
 public:
  Value() = default;  // undefined, without a complaint
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool flag) { return from_bits(Kind::kBool, flag ? 1 : 0); }
  static Value integer(std::int64_t number) { return from_bits(Kind::kInt, number); }
  // A whole number beyond 64 bits, by its digits: it can be written and compared, but not computed with.
  static Value big_integer(std::string digits);
  static Value real(double number);
  static Value text(std::string utf8);
  static Value markup(std::string utf8);          // text made by `safe` or `escape`: `+` escapes the other operand
  static Value undefined(std::string complaint);  // complaint: the error message if the value is needed
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  std::int64_t as_integer() const { return bits_; }  // kInt and kBool
  double as_real() const;                            // any number
  const std::string& as_text() const;                // kString; kBigInt: its digits; kUndefined with a complaint
  bool is_markup() const;
  bool has_object() const { return object_ != nullptr; }
  template <typename T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& pointer() const { return object_; }
  int depth() const { return object_ == nullptr ? 0 : object_->depth; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  static Value from_bits(Kind kind, std::int64_t bits) {
    Value value(kind);
    value.bits_ = bits;
    return value;
  }
  Kind kind_ = Kind::kUndefined;
  std::int64_t bits_ = 0;
  std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;

struct Text : Object {
  std::string utf8;
  bool markup = false;
};
struct Sequence : Object {  // kList, kTuple
  Values items;
  bool is_group = false;  // a tuple of groupby: its items are also called `grouper` and `list`
};
// Keys keep their order. Text keys are found by hash, the rare others by linear search.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string_view, std::size_t> texts;  // views of the keys' own texts
};
struct View : Object {  // dict.keys(), .values(), .items()
  enum class Part { kKeys, kValues, kItems } part = Part::kKeys;
  Value dict;
};
struct Range : Object {
  std::int64_t start = 0, stop = 0, step = 1;
  std::int64_t count() const;
};
struct Iterator : Object {  // result of filters like map: can be iterated once
  Values items;
  std::size_t next = 0;
};
struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
};
struct LoopState : Object {
  Values items;
  std::size_t index = 0;
  std::int64_t level = 0;
  Values changed;  // arguments of the last loop.changed()
  bool changed_called = false;
};

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};
// Something that can be called: a method of `self`, a function of the environment, or a macro (see render.h).
struct Callable : Object {
  enum class Sort { kMethod, kFunction, kMacro } sort = Sort::kFunction;
  std::string name;
  Value self;
};

const char* type_name(const Value& value);  // Python's: "str", "dict", "NoneType", ...
}  // namespace magister::jinja
