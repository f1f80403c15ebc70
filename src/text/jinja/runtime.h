// The state of a running template: its current place, its remaining budget, and how it reports errors. Templates are
// untrusted code: everything that grows or takes time is charged here before it is done.
#pragma once

#include <fmt/format.h>

#include <optional>

#include "magister/core/error.h"
#include "magister/text/chat_template.h"
#include "text/jinja/value.h"

namespace magister::jinja {

struct Place {
  int line = 1, column = 1;  // from 1; the column counts bytes
};

constexpr int kMaxDepth = 100;              // nested lists and dicts
constexpr int kMaxHeight = 250;             // height of one expression, as parsed
constexpr int kMaxParserDepth = 600;        // recursive calls of the parser: about 200 brackets
constexpr int kMaxNesting = 800;            // nested expressions and statements while running, macros included
constexpr std::int64_t kMaxRange = 100000;  // the reference's limit of range()

class Runtime {
 public:
  Runtime(const std::string& source, const RenderOptions& options) : source_(source), options_(options) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  Place place;
  int nesting = 0;

  // Throws Error(kData): "source:line:column: problem (why); what to do".
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_text(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse_text(const std::string& problem) const;
  // strict: refuses a record that lacks something. advice: what to do.
  [[noreturn]] void refuse_field(const std::string& problem, const std::string& advice) const;
  std::string source_at(const Place& at) const { return fmt::format("{}:{}:{}", source_, at.line, at.column); }
  [[noreturn]] void raise(const std::string& message) const;  // the template's raise_exception()

  void charge(std::uint64_t steps);
  // Call before making a text of that size. One step pays for 64 bytes.
  void charge_text(std::uint64_t bytes);
  void need_nesting() const;
  int depth_over(int depth) const;  // depth of a container of something of that depth; refuses more than kMaxDepth

  Value list(Values items) { return sequence(Kind::kList, std::move(items)); }
  Value group(Value grouper, Values items);
  Value tuple(Values items) { return sequence(Kind::kTuple, std::move(items)); }
  Value iterator(Values items);
  Value text(std::string utf8);
  Value method(const Value& self, std::string name);
  Value make_namespace();
  const RenderOptions& options() const { return options_; }

 private:
  Value sequence(Kind kind, Values items);

  const std::string& source_;
  const RenderOptions& options_;
  std::uint64_t steps_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // the only objects that can form cycles: emptied at the end
};

// Builds a dict; an existing key keeps its place and gets the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& runtime) : runtime_(runtime), dict_(std::make_shared<Dict>()) {}
  void set(const Value& key, const Value& value);
  Value done() { return {Kind::kDict, dict_}; }

 private:
  Runtime& runtime_;
  std::shared_ptr<Dict> dict_;
};

// Parameters of a filter, test, method or function bound to the arguments of a call: values[i] is null if not given.
struct Bound {
  std::vector<const Value*> values;
  const Value* operator[](std::size_t i) const { return values[i]; }
};
Bound bind_arguments(Runtime& runtime, std::string_view function, const Arguments& arguments,
                     std::initializer_list<const char*> names, std::size_t required = 0);
Bound bind_arguments(Runtime&, std::string_view, Arguments&&, std::initializer_list<const char*>,
                     std::size_t = 0) = delete;  // would dangle
}  // namespace magister::jinja
