// Verifiers by kind and rule; see verifier.h. PCRE2 uses JIT, but the interpreter decides whether a text is given up:
// its limit of steps is the same on every machine.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "magister/text/verifier.h"

#include <pcre2.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "text/math/compare.h"
#include "text/math/parser.h"
#include "text/math/verify.h"
#include "text/math_answer.h"
#include "text/verifier_auto.h"

namespace magister {

namespace {

using Code = std::unique_ptr<pcre2_code, void (*)(pcre2_code*)>;

Code compiled(const std::string& pattern, std::string& fault) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at, nullptr),
            pcre2_code_free);
  if (pattern.empty()) {
    fault = "it is empty (it would match everything); give one that finds the answer";
  } else if (code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(error, text, sizeof text);
    fault = fmt::format("\"{}\" does not compile: {} at {} (no answer could be found); correct it", printable(pattern),
                        reinterpret_cast<const char*>(text), at);
  }
  return code;
}

}  // namespace

PatternFacts look_at_pattern(const std::string& pattern) {
  PatternFacts facts;
  const Code code = compiled(pattern, facts.fault);
  if (facts.fault.empty()) pcre2_pattern_info(code.get(), PCRE2_INFO_CAPTURECOUNT, &facts.num_groups);
  return facts;
}

bool is_blank(std::string_view text) { return stripped(text).empty(); }

struct Verifier::Regex {
  Regex(const std::string& pattern, const std::string& where);
  // Returns the first non-empty group, or the whole match if the pattern has no group; nothing if there is no match or
  // all groups are empty.
  std::optional<std::string> find(std::string_view text, bool last) const;

  Code code{nullptr, pcre2_code_free};
  std::uint32_t num_groups = 0;
  std::string where;

 private:
  void give_up(std::size_t num_bytes, std::size_t at, int error) const;
  mutable std::atomic<bool> gave_up_ = false;
};

void Verifier::Regex::give_up(std::size_t num_bytes, std::size_t at, int error) const {
  const bool is_limit =
      error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_DEPTHLIMIT || error == PCRE2_ERROR_HEAPLIMIT;
  MAGISTER_CHECK(is_limit, ExitCode::kInternal,
                 "{} fails on a text of {} bytes at byte {} (PCRE2 error {}); simplify the pattern", where, num_bytes,
                 at, error);
  if (gave_up_.exchange(true)) return;
  log_warning(
      "{} gives up on a text of {} bytes at byte {} (PCRE2 error {}: too many ways to match; it counts as no match, "
      "and so will others like it, without a warning); write it with fewer nested repeats",
      where, num_bytes, at, error);
}

Verifier::Regex::Regex(const std::string& pattern, const std::string& where) : where(where) {
  std::string fault;
  code = compiled(pattern, fault);
  MAGISTER_CHECK(fault.empty(), ExitCode::kConfig, "{}: {}", where, fault);
  pcre2_pattern_info(code.get(), PCRE2_INFO_CAPTURECOUNT, &num_groups);
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // ten times as fast; the results are the same without it
}

std::optional<std::string> Verifier::Regex::find(std::string_view text, bool last) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  std::optional<std::string> found;
  for (std::size_t at = 0; at <= text.size();) {
    const auto match = [&](std::uint32_t options) {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, data.get(),
                         nullptr);
    };
    int count = match(at == 0 ? 0 : PCRE2_NO_UTF_CHECK);  // the first call checks all of the text
    // JIT code has a small stack and counts steps differently, so the interpreter decides whether a text is given up.
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) count = match(PCRE2_NO_JIT);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      give_up(text.size(), at, count);
      return std::nullopt;
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
    found.reset();
    for (std::size_t group = num_groups == 0 ? 0 : 1; group <= num_groups && !found; ++group) {
      const bool took_part = group < static_cast<std::size_t>(count) && place[2 * group] != PCRE2_UNSET;
      if (took_part && (num_groups == 0 || place[2 * group + 1] > place[2 * group]))
        found = std::string(text.substr(place[2 * group], place[2 * group + 1] - place[2 * group]));
    }
    if (!last) break;
    at = place[1] > at || place[1] > place[0] ? place[1] : at + 1;
    if (place[1] == place[0] && at == place[1]) ++at;  // after an empty match
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return found;
}

namespace {

// "-$1,234.50" -> "-1234.5", "$5$." -> "5". Any other text only loses its trailing '.', ',' and '$'.
std::string number_form(std::string_view text) {
  while (!text.empty() && (text.back() == '.' || text.back() == ',' || text.back() == '$')) text.remove_suffix(1);
  std::string_view rest = text;
  std::string out;
  const auto take = [&rest](char c) {
    const bool there = !rest.empty() && rest[0] == c;
    if (there) rest.remove_prefix(1);
    return there;
  };
  const auto digits = [&rest] {
    const std::string_view found = rest.substr(0, rest.find_first_not_of("0123456789"));
    rest.remove_prefix(found.size());
    return found;
  };
  if (take('-')) out += '-';
  take('$');
  const std::string_view whole = digits();
  out += whole.empty() ? "0" : whole;
  for (bool first = true; !whole.empty() && take(','); first = false) {
    const std::string_view three = digits();
    if (three.size() != 3 || (first && whole.size() > 3)) return std::string(text);
    out += three;
  }
  if (take('.')) {
    std::string_view fraction = digits();
    if (whole.empty() && fraction.empty()) return std::string(text);
    fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
    if (!fraction.empty()) out.append(".").append(fraction);
  } else if (whole.empty()) {
    return std::string(text);
  }
  return rest.empty() ? out : std::string(text);
}

// Returns a form that equal answers share. "!" keeps answers that strip_string cannot read apart from its results.
std::string latex_form(std::string_view text) {
  std::optional<std::string> form = strip_latex(text);
  return form ? std::move(*form) : "!" + std::string(text);
}
// "1,000/2" and "$1000/2$" become \frac{1000}{2}, with a sign before it as in MATH's answers; empty if not a fraction.
std::string fraction_form(std::string_view text) {
  while (!text.empty() && text.front() == '$') text.remove_prefix(1);
  const std::size_t slash = text.find('/');
  if (slash == 0 || slash == std::string_view::npos || text.find('/', slash + 1) != std::string_view::npos) return {};
  std::string over = number_form(text.substr(0, slash)), under = number_form(text.substr(slash + 1));
  const auto is_whole = [](std::string_view a) {
    return !a.empty() && a.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const bool negative = over.starts_with('-');
  if (negative) over.erase(0, 1);
  if (!is_whole(over) || !is_whole(under)) return {};
  return fmt::format("{}\\frac{{{}}}{{{}}}", negative ? "-" : "", over, under);
}

std::string auto_form(std::string_view answer) {
  const std::string plain = plain_spaces(plain_separators(plain_signs(answer)));
  const std::string_view text = without_unit(stripped(plain));
  std::string fraction = fraction_form(text);
  if (!fraction.empty()) return latex_form(fraction);
  std::string number = number_form(text);
  number = number_form(latex_form(number == "-0" ? "0" : number));  // "\$9,500" becomes a number only in latex_form()
  return number == "-0" ? "0" : number;
}

std::string auto_reference(std::string_view answer) {
  if (std::optional<std::string> boxed = last_boxed(answer)) return std::move(*boxed);
  const std::size_t mark = answer.rfind("#### ");
  return std::string(mark == std::string_view::npos ? answer : answer.substr(mark + 5));
}

// Returns the end of the "/4" of "3/4" if a fraction's numerator ends at `at`, else `at`. A date is not a fraction.
std::size_t fraction_end(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at] != '/') return at;
  const std::size_t end = std::min(text.find_first_not_of("0123456789", at + 1), text.size());
  const bool goes_on = end + 1 < text.size() && text[end] == '/' && text[end + 1] >= '0' && text[end + 1] <= '9';
  return end == at + 1 || goes_on ? at : end;
}

std::optional<std::string> auto_number(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789", kSigns = "$0123456789.,";
  if (const std::optional<std::string> marked = marked_number(text)) {
    const std::size_t end = text.find("#### " + *marked) + 5 + marked->size();
    return *marked + std::string(text.substr(end, fraction_end(text, end) - end));
  }
  const std::size_t last = text.find_last_of(kDigits);
  if (last == std::string_view::npos) return std::nullopt;
  const std::size_t end = std::min(text.find_first_not_of(kSigns, last), text.size());
  const auto begin_of = [&](std::size_t in) {
    const std::size_t before = text.find_last_not_of(kSigns, in);
    std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::size_t marks = text.find_first_not_of(".,", begin) - begin;
    if (marks > 1 || text[begin] == ',') begin += marks;  // "...7" is 7, ".7" is not
    return begin > 0 && text[begin - 1] == '-' && !joins(text, begin - 1) ? begin - 1 : begin;
  };
  std::size_t begin = begin_of(last);
  if (begin >= 2 && text[begin - 1] == '/' && kDigits.find(text[begin - 2]) != std::string_view::npos) {
    const std::size_t numerator = begin_of(begin - 2);
    if (fraction_end(text, begin - 1) == last + 1 && (numerator == 0 || text[numerator - 1] != '/')) begin = numerator;
  }
  return std::string(text.substr(begin, end - begin));
}

std::optional<std::string> math_answer(std::string_view text, MathRule rule) {
  switch (rule) {
    case MathRule::kGsm8kStrict:
      return marked_number(text);
    case MathRule::kGsm8kFlexible:
      return last_number(text);
    case MathRule::kMath:
      return between_dollars(text);
    case MathRule::kBoxed:
      return last_boxed(text);
    case MathRule::kMathVerify: {
      math::Reading found = math::read_answer(text);
      return found.formula.empty() ? std::nullopt : std::optional(std::move(found.formula));
    }
    case MathRule::kAuto:
      break;
  }
  std::optional<std::string> found = last_boxed(text);
  return found ? found : auto_number(plain_separators(plain_signs(text)));
}

bool same_math(std::string_view found, std::string_view answer, MathRule rule) {
  switch (rule) {
    case MathRule::kGsm8kStrict:
    case MathRule::kGsm8kFlexible:
      return plain_number(found) == plain_number(answer);
    case MathRule::kMath:
    case MathRule::kBoxed:
      return same_latex(found, last_boxed(answer).value_or(std::string(answer)));
    case MathRule::kMathVerify:  // judge() compares whole texts
    case MathRule::kAuto:
      break;
  }
  return auto_form(found) == auto_form(auto_reference(answer));
}

std::string math_class(std::string_view found, MathRule rule) {
  switch (rule) {
    case MathRule::kGsm8kStrict:
    case MathRule::kGsm8kFlexible:
      return plain_number(found);
    case MathRule::kMath:
    case MathRule::kBoxed:
      return latex_form(found);
    case MathRule::kMathVerify: {
      const math::TreePtr tree = math::parse_formula(found).tree;
      return tree ? math::form_of(tree) : "!" + std::string(found);
    }
    case MathRule::kAuto:
      break;
  }
  return auto_form(found);
}

}  // namespace

Verifier::Verifier(const VerifierOptions& options) : options_(options) {
  if (options_.kind == VerifierKind::kRegex) regex_ = std::make_unique<Regex>(options_.pattern, options_.where);
}
Verifier::~Verifier() = default;
Verifier::Verifier(Verifier&&) noexcept = default;

bool Verifier::extracts() const { return regex_ == nullptr || regex_->num_groups > 0; }

std::optional<std::string> Verifier::extract(std::string_view completion) const {
  switch (options_.kind) {
    case VerifierKind::kExact:
      return std::string(stripped(completion));
    case VerifierKind::kMath:
      return math_answer(completion, options_.rule);
    case VerifierKind::kRegex:
      break;
  }
  if (!extracts()) return std::nullopt;
  const std::optional<std::string> found = regex_->find(completion, options_.last_match);
  const std::string_view answer = found ? stripped(*found) : std::string_view();
  return answer.empty() ? std::nullopt : std::optional(std::string(answer));
}

Judged Verifier::judge(std::string_view completion, std::string_view answer) const {
  if (!reports_unread()) return {matches(completion, answer) ? 1.0 : 0.0, Unread::kNone};
  const math::Verdict verdict = math::verify(answer, completion);
  return {verdict.right ? 1.0 : 0.0, verdict.right ? Unread::kNone : verdict.unread};
}

bool Verifier::matches(std::string_view completion, std::string_view answer) const {
  if (!extracts()) return regex_->find(completion, false).has_value();
  const std::optional<std::string> found = extract(completion);
  if (!found) return false;
  return options_.kind == VerifierKind::kMath ? same_math(*found, answer, options_.rule) : *found == stripped(answer);
}

std::optional<std::string> Verifier::answer_class(std::string_view completion, std::string_view answer) const {
  const char letter = reports_unread() ? math::chosen_letter(answer, completion) : '\0';
  if (letter != '\0') return math_class(std::string_view(&letter, 1), options_.rule);
  std::optional<std::string> found = extract(completion);
  if (found && options_.kind == VerifierKind::kMath) found = math_class(*found, options_.rule);
  return found;
}

}  // namespace magister
