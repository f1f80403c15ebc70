// Answers to questions of mathematics in LaTeX and as numbers, by the rules of lm-evaluation-harness 0.4.13, written anew: its functions are
// named where one does the same. Python works on code points and so does this where it matters. Texts are UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace magister {

// hendrycks_math: remove_boxed(last_boxed_only_string(text)); nothing where there is no box, or its brace is not closed.
std::optional<std::string> last_boxed(std::string_view text);
// hendrycks_math: process_results: between the first and the last $, or all of it.
std::string between_dollars(std::string_view text);
// hendrycks_math: strip_string. Nothing where the Python function raises: a \frac or \sqrt at the end, two \text{ , a slash between what is
// no whole number.
std::optional<std::string> strip_latex(std::string_view text);
// hendrycks_math: is_equiv.
bool same_latex(std::string_view one, std::string_view other);

// gsm8k: the filters strict-match (the first "#### NUMBER") and flexible-extract (the last number).
std::optional<std::string> marked_number(std::string_view text);
std::optional<std::string> last_number(std::string_view text);
// gsm8k: regexes_to_ignore of its exact_match: commas, $, all up to the last "#### ", one dot at the end.
std::string plain_number(std::string_view text);

// Without what Python's str.strip() takes away.
std::string_view stripped(std::string_view text);

}  // namespace magister
