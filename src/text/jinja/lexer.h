// Splits a template's text into tokens: data outside tags, and names, texts, numbers and operators inside. Comments,
// raw blocks and all white-space control (- and +, trim_blocks, lstrip_blocks) are resolved here; the parser never sees
// them.
#pragma once

#include "text/jinja/runtime.h"

namespace magister::jinja {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // the value: texts without quotes and escapes, numbers without underscores
  Place place;
};

// Throws Error(kData) with source:line:column. template_text is well-formed UTF-8.
std::vector<Token> tokenize(std::string_view template_text, const std::string& source);

template <typename... Args>
[[noreturn]] void refuse_template(const std::string& source, Place place, fmt::format_string<Args...> format,
                                  Args&&... args) {
  fail(ExitCode::kData,
       "{}:{}:{}: {} (nothing can be written with this template); correct it, or if it is a model's use the one that "
       "came with the model",
       source, place.line, place.column, printable(fmt::format(format, std::forward<Args>(args)...), 400));
}
}  // namespace magister::jinja
