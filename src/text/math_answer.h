// Answers to mathematical questions, in LaTeX and as numbers, by the rules of lm-evaluation-harness 0.4.13,
// reimplemented. Comments name its function where one does the same. Like Python, this works on code points where it
// matters. Texts are UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace magister {

// hendrycks_math: remove_boxed(last_boxed_only_string(text)); nothing if there is no box or its brace is not closed.
std::optional<std::string> last_boxed(std::string_view text);
// hendrycks_math: process_results: the text between the first and the last $, or all of it.
std::string between_dollars(std::string_view text);
// hendrycks_math: strip_string. Nothing where the Python function raises: a \frac or \sqrt at the end, two "\text{ ", a
// slash between texts that are not whole numbers.
std::optional<std::string> strip_latex(std::string_view text);
// hendrycks_math: is_equiv.
bool same_latex(std::string_view one, std::string_view other);

// gsm8k: the filters strict-match (the first "#### NUMBER") and flexible-extract (the last number).
std::optional<std::string> marked_number(std::string_view text);
std::optional<std::string> last_number(std::string_view text);
// gsm8k: regexes_to_ignore of its exact_match: drops commas, $, everything up to the last "#### ", and one dot at the
// end.
std::string plain_number(std::string_view text);

// Python's str.strip().
std::string_view stripped(std::string_view text);

}  // namespace magister
