// Reads the keys in the order in which the resolved experiment shows them; see verifier_config.h.
#include "magister/tasks/score/verifier_config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/dataset/record_json.h"
#include "magister/runtime/chat_prompts.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

std::size_t chosen(ConfigNode& node, const char* key, const std::vector<std::string>& names) {
  const std::string name = node.choice(key, names, names.front());
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

// "-1.5e3" -> "-1500": keeps every digit, which a double would not. An exponent that would give thousands of zeros is
// kept.
std::string without_exponent(const std::string& number) {
  const std::size_t mark = number.find_first_of("eE");
  if (mark == std::string::npos) return number;
  int exponent = 0;
  const char* const begin = number.data() + mark + (number[mark + 1] == '+' ? 2 : 1);
  const auto [end, error] = std::from_chars(begin, number.data() + number.size(), exponent);
  if (error != std::errc() || std::abs(exponent) > 4000) return number;
  const std::string sign = number[0] == '-' ? "-" : "";
  std::string digits = number.substr(sign.size(), mark - sign.size());
  const std::size_t dot = std::min(digits.find('.'), digits.size());
  if (dot < digits.size()) digits.erase(dot, 1);
  const int place = static_cast<int>(dot) + exponent, size = static_cast<int>(digits.size());
  if (place <= 0) return sign + "0." + std::string(static_cast<std::size_t>(-place), '0') + digits;
  if (place >= size) digits.append(static_cast<std::size_t>(place - size), '0');
  if (place < size) digits.insert(static_cast<std::size_t>(place), ".");
  const std::size_t zeros = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return sign + digits.substr(digits[zeros] == '.' ? zeros - 1 : zeros);
}

// A line of JSON with its numbers as strings: parsed as numbers they would keep only the digits of a double.
std::string with_numbers_as_texts(const std::string& line) {
  std::string out;
  for (std::size_t at = 0; at < line.size();) {
    std::size_t end = at + 1;
    if (line[at] == '"') {
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      out += line.substr(at, ++end - at);
    } else if (line[at] == '-' || (line[at] >= '0' && line[at] <= '9')) {
      end = std::min(line.find_first_not_of("+-.eE0123456789", at), line.size());
      out += '"' + without_exponent(line.substr(at, end - at)) + '"';
    } else {
      out += line[at];
    }
    at = end;
  }
  return out;
}

std::string answer_text(const ordered_json& value, const std::string& field, const Record& record) {
  MAGISTER_CHECK(value.is_string(), ExitCode::kData,
                 "{}: {} is {} (a text or a number is compared); fix this line or name another field", record.where,
                 printable(field), value.type_name());
  const auto text = value.get<std::string>();
  MAGISTER_CHECK(!is_blank(text), ExitCode::kData,
                 "{}: {} is empty (writing nothing would be right); give an answer, or leave the record out",
                 record.where, printable(field));
  return text;
}

// Returns false only for a pattern without a group. A pattern that is missing or does not compile is a fault.
bool read_pattern(ConfigNode& of_regex, bool applies, VerifierOptions& options) {
  const std::optional<std::string> pattern = of_regex.optional_text("pattern");
  options.pattern = pattern.value_or("");
  options.where = of_regex.place("pattern");
  if (!applies) return true;
  if (!pattern) {
    of_regex.reject("pattern",
                    "the key is missing (nothing says what is searched for); add it with a regular expression, for "
                    "example \"answer is ([0-9]+)\"");
    return true;
  }
  const PatternFacts facts = look_at_pattern(options.pattern);
  if (!facts.fault.empty()) of_regex.reject("pattern", "{}", facts.fault);
  return !facts.fault.empty() || facts.num_groups > 0;
}

}  // namespace

VerifierConfig read_verifier_config(ConfigNode& section, const std::string& kind) {
  VerifierConfig config;
  VerifierOptions& options = config.options;
  options.kind = kind == "math" ? VerifierKind::kMath : kind == "regex" ? VerifierKind::kRegex : VerifierKind::kExact;
  const bool regex = kind == "regex", any = regex || kind == "math" || kind == "exact";
  ConfigNode of_math =
      section.only_if(kind == "math", "is given with another verifier; set verifier: math, or remove it");
  options.rule = static_cast<MathRule>(
      chosen(of_math, "rule", {"math_verify", "auto", "gsm8k_strict", "gsm8k_flexible", "hendrycks_math", "boxed"}));
  ConfigNode of_regex =
      section.only_if(regex, "is given without `verifier: regex` (only that searches for it); set it, or remove it");
  const bool has_group = read_pattern(of_regex, regex, options);
  constexpr const char* kNoGroup =
      "is given, and the pattern has no group (any match is right, and nothing is compared); put what is to equal the "
      "answer into (...), or remove it";
  ConfigNode of_groups = of_regex.only_if(!regex || has_group, kNoGroup);
  options.last_match = chosen(of_groups, "match", {"first", "last"}) == 1;
  ConfigNode of_answers =
      section.only_if(any && has_group, !any ? "is given without a verifier (nothing would be compared with it); name "
                                               "one - exact, math or regex - or remove it"
                                             : kNoGroup);
  config.answer_field = of_answers.text("answer", "answer");
  if (!any || !has_group) config.answer_field.clear();
  section.also_called("verifier", {"reward", "reward_function", "reward_funcs", "function", "metric", "scorer"});
  section.also_called("answer", {"reference", "target", "ground_truth", "solution", "label"});
  section.also_called("pattern", {"regex", "regex_pattern"});
  section.also_called("match", {"group_select"});
  return config;
}

std::vector<std::string> right_answers(const Record& record, const std::string& field) {
  if (field.empty()) return {};
  if (const ordered_json& value = record_field(record, field); value.is_string())
    return {answer_text(value, field, record)};
  Record spelled = record;  // numbers have every digit of the line, which a double does not keep
  spelled.fields = std::make_shared<const ordered_json>(parse_record(with_numbers_as_texts(record.text)));
  const ordered_json& value = record_field(spelled, field);
  if (!value.is_array()) return {answer_text(value, field, record)};
  MAGISTER_CHECK(!value.empty(), ExitCode::kData,
                 "{}: {} is an empty list (no completion could be right); give an answer, or leave the record out",
                 record.where, printable(field));
  std::vector<std::string> all;
  std::transform(value.begin(), value.end(), std::back_inserter(all),
                 [&](const ordered_json& one) { return answer_text(one, field, record); });
  return all;
}

Judged verified(const Verifier& verifier, const std::string& completion, const std::vector<std::string>& answers) {
  if (answers.empty()) return verifier.judge(completion, "");
  std::optional<Judged> wrong;
  for (const std::string& answer : answers) {
    const Judged one = verifier.judge(completion, answer);
    if (one.score == 1.0) return one;
    if (!wrong || one.unread == Unread::kNone) wrong = one;
  }
  return *wrong;
}

}  // namespace magister
