// str(), repr() and json.dumps() of values.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace magister::jinja {
namespace {

// Recursion goes only through containers, whose depth is bounded, and namespaces, which `level` bounds.
void append_repr(Runtime& runtime, const Value& value, std::string& out, int level);

void append_list(Runtime& runtime, const Values& items, std::string& out, int level) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    append_repr(runtime, item, out, level);
  }
}

void append_dict(Runtime& runtime, const Dict& dict, std::string& out, int level) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    append_repr(runtime, key, out, level);
    out += ": ";
    append_repr(runtime, value, out, level);
  }
  out += '}';
}

void append_range(const Range& range, std::string& out) {
  out += fmt::format("range({}, {}", range.start, range.stop);
  if (range.step != 1) out += fmt::format(", {}", range.step);
  out += ')';
}

void append_view(Runtime& runtime, const Value& value, std::string& out, int level) {
  const auto part = value.object<View>().part;
  out += part == View::Part::kKeys ? "dict_keys([" : part == View::Part::kValues ? "dict_values([" : "dict_items([";
  append_list(runtime, items_of(runtime, value), out, level);
  out += "])";
}

void append_namespace(Runtime& runtime, const Namespace& space, std::string& out, int level) {
  out += "<Namespace {";
  for (std::size_t i = 0; i < space.attributes.size(); ++i) {
    if (i > 0) out += ", ";
    out += repr_of_text(space.attributes[i].first) + ": ";
    append_repr(runtime, space.attributes[i].second, out, level);
  }
  out += "}>";
}

void append_repr(Runtime& runtime, const Value& value, std::string& out, int level) {
  runtime.charge_text(out.size() > runtime.options().max_bytes ? out.size() : 64);
  if (level > 2 * kMaxDepth) runtime.refuse("a namespace that holds itself cannot be printed");
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as_integer() != 0 ? "True" : "False";
      return;
    case Kind::kInt:
      out += std::to_string(value.as_integer());
      return;
    case Kind::kBigInt:
      out += value.as_text();
      return;
    case Kind::kFloat:
      out += repr_of_real(value.as_real());
      return;
    case Kind::kString:
      runtime.charge_text(value.as_text().size());
      out += value.is_markup() ? "Markup(" + repr_of_text(value.as_text()) + ")" : repr_of_text(value.as_text());
      return;
    case Kind::kList:
      out += '[';
      append_list(runtime, value.object<Sequence>().items, out, level + 1);
      out += ']';
      return;
    case Kind::kTuple:
      out += '(';
      append_list(runtime, value.object<Sequence>().items, out, level + 1);
      out += value.object<Sequence>().items.size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict:
      append_dict(runtime, value.object<Dict>(), out, level + 1);
      return;
    case Kind::kView:
      append_view(runtime, value, out, level + 1);
      return;
    case Kind::kRange:
      append_range(value.object<Range>(), out);
      return;
    case Kind::kNamespace:
      append_namespace(runtime, value.object<Namespace>(), out, level + 1);
      return;
    case Kind::kIterator:
    case Kind::kCallable:
    case Kind::kLoop:
      // Python would print an address, which differs in every run.
      runtime.refuse("a {} is printed", type_name(value));
  }
}

void append_json_text(const std::string& text, bool ensure_ascii, std::string& out) {
  const auto escape = [&](unsigned unit) { out += fmt::format("\\u{:04x}", unit); };
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : c == '\b' ? "\\b" : "\\f";
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
      escape(static_cast<unsigned>(c));
    } else if (ensure_ascii && c >= 0x10000) {
      escape(static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)));
      escape(static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
    } else {
      out.append(text, at, bytes);
    }
    at += bytes;
  }
  out += '"';
}

std::string json_of_real(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return repr_of_real(number);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, int level) {
    runtime_.charge_text(out.size() > runtime_.options().max_bytes ? out.size() : 64);
    switch (value.kind()) {
      case Kind::kNone:
        out += "null";
        return;
      case Kind::kBool:
        out += value.as_integer() != 0 ? "true" : "false";
        return;
      case Kind::kInt:
        out += std::to_string(value.as_integer());
        return;
      case Kind::kBigInt:
        out += value.as_text();
        return;
      case Kind::kFloat:
        out += json_of_real(value.as_real());
        return;
      case Kind::kString:
        runtime_.charge_text(value.as_text().size());
        append_json_text(value.as_text(), style_.ensure_ascii, out);
        return;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.object<Sequence>().items, level);
        return;
      case Kind::kDict:
        write_dict(value.object<Dict>(), level);
        return;
      case Kind::kUndefined:
        need_defined(runtime_, value);
        return;
      default:
        runtime_.refuse("a {} cannot be written as JSON", type_name(value));
    }
  }
  std::string out;

 private:
  void new_line(int level) {
    if (!style_.indented) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += style_.indent;
  }
  void write_list(const Values& items, int level) {
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.between;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    out += ']';
  }
  void write_dict(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto* a, auto* b) { return less(runtime_, a->first, b->first); });
    }
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.between;
      new_line(level + 1);
      write_key(entries[i]->first);
      out += style_.after_key;
      write(entries[i]->second, level + 1);
    }
    if (!entries.empty()) new_line(level);
    out += '}';
  }
  void write_key(const Value& key) {
    if (key.is(Kind::kString)) return append_json_text(key.as_text(), style_.ensure_ascii, out);
    if (!key.is_number() && !key.is(Kind::kNone)) runtime_.refuse("a {} cannot be a key in JSON", type_name(key));
    out += '"';
    write(key, 0);
    out += '"';
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

std::string repr_of(Runtime& runtime, const Value& value) {
  std::string out;
  append_repr(runtime, value, out, 0);
  return out;
}

void need_written(const Runtime& runtime, const Value& value) {
  if (!runtime.options().strict || !value.is(Kind::kUndefined)) return;
  runtime.refuse_field(value.has_object() ? value.as_text() : "an undefined value",
                       "complete the record, or let the template test for it: {% if x is defined %}");
}

std::string str_of(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kUndefined)) return {};
  if (value.is(Kind::kNone) && runtime.options().strict) {
    runtime.refuse_field("null would be written as \"None\"",
                         "complete the record, or let the template test for it: {% if x is not none %}");
  }
  if (value.is(Kind::kString)) {
    runtime.charge_text(value.as_text().size());
    return value.as_text();
  }
  return repr_of(runtime, value);
}

std::string json_of(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, 0);
  return std::move(writer.out);
}
}  // namespace magister::jinja
