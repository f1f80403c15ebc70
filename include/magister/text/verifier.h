// Verifier: decides by a rule, without a model, whether a completion gives a known answer. It is the reward for
// questions with one right answer.
// Rules that name lm-evaluation-harness follow version 0.4.13 (tests/text/verifier_test.py compares them with its own
// functions).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "magister/text/unread.h"

namespace magister {

enum class VerifierKind {
  // Ours: equal byte for byte once the whitespace around both is stripped.
  kExact,
  // The answer in a mathematical text; see MathRule.
  kMath,
  // The answer is the first non-empty group of the pattern's first match (lm-eval's RegexFilter with group_select 0 or
  // -1), compared as kExact does. A pattern without groups only has to match, whatever the answer is. The syntax is
  // PCRE2's in UTF mode: \s, \d and \w are Unicode's.
  kRegex,
};

enum class MathRule {
  // Math-Verify 0.9.0 with its default configurations: the answer is searched for in boxes, after the word "answer",
  // and in formulas and numbers from the end, then compared by value (src/text/math/README.md).
  kMathVerify,
  // Ours, made of lm-eval's parts. The completion's answer is that of kBoxed, else of kGsm8kStrict, else the last
  // number that has a digit (lm-eval accepts "..." as one); the last two include the /4 of 3/4. The reference answer is
  // the content of its last box, else the text after its last "#### ", else all of it. A number loses $, commas before
  // three digits, trailing zeros after the point and punctuation that ends a sentence. Then both are compared by MATH's
  // rule (strip_string).
  kAuto,
  // lm-eval's GSM8K: the first "#### NUMBER" (strict-match) or the last number (flexible-extract) of the completion,
  // and the reference answer after its last "#### "; commas, $ and one dot at the end are dropped. A completion without
  // a number is wrong even if the answer is "[invalid]".
  kGsm8kStrict,
  kGsm8kFlexible,
  // lm-eval's hendrycks_math: the text between the first and the last $ of the completion, or all of it if there are
  // not two.
  kMath,
  // lm-eval's last_boxed_only_string and remove_boxed, on the completion and on the answer. \fbox{} counts too
  // (lm-eval's remove_boxed fails on it).
  kBoxed,
};

struct VerifierOptions {
  VerifierKind kind = VerifierKind::kExact;
  std::string pattern;                    // kRegex
  bool last_match = false;                // kRegex: the last match instead of the first
  MathRule rule = MathRule::kMathVerify;  // kMath
  std::string where = "the pattern";      // names the pattern in messages: file:line:column and key
};

struct PatternFacts {
  std::string fault;  // why it cannot be used, as "<problem> (<why>); <what to do>"; empty: usable
  std::uint32_t num_groups = 0;
};
// Checks a pattern for kRegex.
PatternFacts look_at_pattern(const std::string& pattern);

// Reports whether the text is empty after Python's str.strip().
bool is_blank(std::string_view text);

struct Judged {
  double score = 0;               // 1.0: right, 0.0: wrong
  Unread unread = Unread::kNone;  // kMathVerify: why it was not compared
};

// Immutable; thread-safe. Texts are UTF-8; invalid bytes match no pattern.
class Verifier {
 public:
  // Throws Error(kConfig) with `where` if the pattern is empty or does not compile.
  explicit Verifier(const VerifierOptions& options);
  ~Verifier();
  Verifier(Verifier&&) noexcept;

  // 1.0: right, 0.0: wrong. A text on which PCRE2 gives up (its limit of 10^7 steps) counts as no match, the same on
  // every machine; the first such text logs a warning.
  double score(std::string_view completion, std::string_view answer) const { return judge(completion, answer).score; }
  Judged judge(std::string_view completion, std::string_view answer) const;
  // Returns the completion's answer; nothing if none was found, or if the pattern has no group.
  std::optional<std::string> extract(std::string_view completion) const;
  // Returns the answer in a form that is equal for answers that count as the same, for majority votes. answer: the
  // right one, or empty; if it is the letter of a choice, kMathVerify looks for a letter.
  std::optional<std::string> answer_class(std::string_view completion, std::string_view answer = {}) const;
  // Reports whether extract() can find anything: not with a pattern without groups.
  bool extracts() const;
  // Reports whether judge() tells which texts were not compared: only kMathVerify does.
  bool reports_unread() const { return options_.kind == VerifierKind::kMath && options_.rule == MathRule::kMathVerify; }

 private:
  struct Regex;
  bool matches(std::string_view completion, std::string_view answer) const;

  VerifierOptions options_;
  std::unique_ptr<Regex> regex_;
};

}  // namespace magister
