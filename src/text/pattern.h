// Pattern: a compiled PCRE2 expression in UTF mode with JIT. Immutable; several threads may search at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

struct Match {
  std::size_t begin = 0, end = 0;
};

class Pattern {
 public:
  // The syntax that the pattern was written in: Oniguruma's (tokenizer.json; $ matches at the end of each line) or
  // Rust's (tiktoken; $ matches at the end of the text). Classes are those of the reference's Unicode version.
  enum class Syntax { kOniguruma, kRust };
  // Throws Error(kData) with PCRE2's message and `source`; constructs that PCRE2 reads differently than the reference
  // are refused.
  Pattern(const std::string& pattern, const std::string& source, Syntax syntax = Syntax::kOniguruma);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Appends all non-empty matches from left to right. text is well-formed UTF-8.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace magister
