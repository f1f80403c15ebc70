// Verifier: whether a completion gives a known answer, by a rule and without a model: the reward of questions with one right answer.
// The rules are lm-evaluation-harness 0.4.13's where one is named so (tests/text/verifier_test.py holds them to its own functions).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "magister/text/unread.h"

namespace magister {

enum class VerifierKind {
  // Ours: both without the whitespace around them, else byte for byte.
  kExact,
  // The answer in a text about mathematics; see MathRule.
  kMath,
  // The first match of a pattern; its first group that is not empty is the answer (lm-eval's RegexFilter with group_select 0 or -1), compared as
  // kExact does. A pattern without groups has to match, whatever the answer is. Syntax is PCRE2's in UTF mode: \s, \d and \w are Unicode's.
  kRegex,
};

enum class MathRule {
  // As Math-Verify 0.9.0 with its default configurations has it: the answer is looked for in boxes, behind the word "answer", in formulas and numbers
  // from the end, and compared by value (src/text/math/README.md).
  kMathVerify,
  // Ours, of lm-eval's parts: of the completion kBoxed, else kGsm8kStrict, else the last number that has a digit (lm-eval takes "..." for one),
  // these two with the /4 of 3/4; of the answer what its last box holds, else what stands behind its last "#### ", else all of it. What is a
  // number loses $, commas before three digits, zeros behind the point and what ends a sentence; then both are compared as MATH has it
  // (strip_string).
  kAuto,
  // lm-eval's GSM8K: the first "#### NUMBER" (strict-match) or the last number (flexible-extract) of the completion, and the answer behind its
  // last "#### "; commas, $ and one dot at the end are dropped. A completion without a number is wrong even where the answer is "[invalid]".
  kGsm8kStrict,
  kGsm8kFlexible,
  // lm-eval's hendrycks_math: what stands between the first and the last $ of the completion, or all of it where there are not two.
  kMath,
  // lm-eval's last_boxed_only_string and remove_boxed on the completion, as on the answer; \fbox{} counts too (there its remove_boxed gives up).
  kBoxed,
};

struct VerifierOptions {
  VerifierKind kind = VerifierKind::kExact;
  std::string pattern;                    // of kRegex
  bool last_match = false;                // of kRegex: the last match, not the first
  MathRule rule = MathRule::kMathVerify;  // of kMath
  std::string where = "the pattern";      // names the pattern in messages: file:line:column and key
};

struct PatternFacts {
  std::string fault;  // why it cannot be used, as "<problem> (<why>); <what to do>"; empty: it can
  std::uint32_t num_groups = 0;
};
// Of a pattern of kRegex.
PatternFacts look_at_pattern(const std::string& pattern);

// Whether nothing is left without what Python's str.strip() takes away.
bool is_blank(std::string_view text);

struct Judged {
  double score = 0;               // 1.0: right, 0.0: wrong
  Unread unread = Unread::kNone;  // of kMathVerify: why it was not compared
};

// Immutable; several threads may ask at once. Texts are UTF-8; bytes that are none match no pattern.
class Verifier {
 public:
  // Throws Error(kConfig) with `where` for a pattern that is empty or does not compile.
  explicit Verifier(const VerifierOptions& options);
  ~Verifier();
  Verifier(Verifier&&) noexcept;

  // 1.0: right, 0.0: wrong. A text on which PCRE2 gives up (its limit of 10^7 steps) has no match, on every machine the same; the first one is
  // a warning.
  double score(std::string_view completion, std::string_view answer) const { return judge(completion, answer).score; }
  Judged judge(std::string_view completion, std::string_view answer) const;
  // What the completion gives as its answer; nothing where none was found, or where the pattern has no group.
  std::optional<std::string> extract(std::string_view completion) const;
  // The same in a form that is equal for answers that count as the same: what a majority is taken over. answer: the right one, or empty: where it is the
  // letter of a choice, kMathVerify looks for a letter.
  std::optional<std::string> answer_class(std::string_view completion, std::string_view answer = {}) const;
  // Whether extract() can find anything: not with a pattern without groups.
  bool extracts() const;
  // Whether judge() tells texts that were not compared: kMathVerify alone.
  bool tells_unread() const { return options_.kind == VerifierKind::kMath && options_.rule == MathRule::kMathVerify; }

 private:
  struct Regex;
  bool matches(std::string_view completion, std::string_view answer) const;

  VerifierOptions options_;
  std::unique_ptr<Regex> regex_;
};

}  // namespace magister
