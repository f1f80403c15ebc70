#include "tasks/exam/structure_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "magister/text/folded.h"

namespace magister {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 9> kAbsolute{"always", "never", "all",        "none",      "only",
                                                    "every",  "must",  "completely", "impossible"};
constexpr std::array<std::string_view, 7> kNegations{"not", "except", "isn't", "don't", "doesn't", "aren't", "cannot"};
// Words that stems and choices share without giving anything away.
constexpr std::array<std::string_view, 72> kCommon{
    "the",    "and",       "for",     "are",       "was",      "were",  "with",      "that",   "this",
    "these",  "those",     "which",   "what",      "when",     "where", "who",       "why",    "how",
    "from",   "into",      "than",    "then",      "they",     "them",  "their",     "its",    "has",
    "have",   "had",       "does",    "did",       "can",      "will",  "would",     "could",  "should",
    "not",    "but",       "all",     "any",       "each",     "most",  "more",      "less",   "only",
    "both",   "between",   "because", "through",   "during",   "about", "over",      "under",  "after",
    "before", "following", "best",    "describes", "true",     "false", "statement", "answer", "used",
    "use",    "called",    "main",    "process",   "function", "role",  "part",      "one",    "two"};

template <typename Names>
bool names_hold(const Names& names, std::string_view word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

// A word without a common English ending, so that "processes" repeats "process".
std::string stem_of(std::string word) {
  for (const std::string_view ending : {"ing", "ed", "s"}) {
    if (word.size() > ending.size() + 3 && word.ends_with(ending)) {
      word.resize(word.size() - ending.size());
      break;
    }
  }
  if (word.size() > 4 && word.ends_with('e')) word.pop_back();
  return word;
}

std::set<std::string> telling_words(std::string_view text) {
  std::set<std::string> result;
  for (const std::string& word : folded_words(text)) {
    if (num_code_points(word) > 2 && !names_hold(kCommon, word)) result.insert(stem_of(word));
  }
  return result;
}

bool holds_words(const Words& words, const Words& part) {
  return !part.empty() && std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

std::vector<std::string_view> answers_of(const ExamItem& item) {
  std::vector<std::string_view> answers;
  for (const ItemChoice& choice : item.choices) answers.push_back(choice.text);
  if (item.kind == ItemKind::kShortAnswer) answers.assign(item.accepted.begin(), item.accepted.end());
  return answers;
}

CheckResult result_of(double number, bool passed, std::string reason) {
  return {number, passed, passed ? std::string() : std::move(reason)};
}

CheckResult complete(const ExamItem& item, std::size_t expected_choices) {
  std::vector<std::string> faults;
  if (folded(item.stem).empty()) faults.emplace_back("the stem is empty");
  const std::vector<std::string_view> answers = answers_of(item);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!folded(answers[i]).empty()) continue;
    faults.push_back(item.kind == ItemKind::kShortAnswer ? fmt::format("accepted answer {} is empty", i + 1)
                                                         : fmt::format("choice {} is empty", i + 1));
  }
  const std::size_t n = item.choices.size();
  if (item.kind == ItemKind::kChoice && (n < 2 || n > 26 || (expected_choices != 0 && n != expected_choices))) {
    faults.push_back(expected_choices != 0 ? fmt::format("it has {} choices instead of {}", n, expected_choices)
                                           : fmt::format("it has {} choices instead of 2 to 26", n));
  }
  if (item.kind == ItemKind::kTrueFalse && n != 2) faults.push_back(fmt::format("it has {} choices instead of 2", n));
  if (item.kind == ItemKind::kShortAnswer && item.accepted.empty()) faults.emplace_back("no answer is accepted");
  return result_of(static_cast<double>(faults.size()), faults.empty(),
                   fmt::format("The item is not complete: {}.", fmt::join(faults, ", ")));
}

CheckResult key_in_set(const ExamItem& item) {
  if (item.kind == ItemKind::kNumeric) {
    const bool sound = std::isfinite(item.value) && std::isfinite(item.tolerance) && item.tolerance >= 0;
    return result_of(sound ? 0 : 1, sound, "The value or its tolerance is not a number that an answer can equal.");
  }
  if (item.kind == ItemKind::kShortAnswer) return {};
  const bool sound = item.key < item.choices.size();
  return result_of(
      sound ? 0 : 1, sound,
      fmt::format("The right answer is number {}, but there are {} choices.", item.key + 1, item.choices.size()));
}

CheckResult distinct(const ExamItem& item) {
  std::vector<std::string> texts;
  for (const std::string_view answer : answers_of(item)) texts.push_back(folded(answer));
  std::size_t pairs = 0;
  std::string named;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t j = i + 1; j < texts.size(); ++j) {
      if (texts[i].empty() || texts[i] != texts[j]) continue;
      if (pairs++ == 0) named = fmt::format("{} and {}", i + 1, j + 1);
    }
  }
  return result_of(static_cast<double>(pairs), pairs == 0, fmt::format("The answers {} are the same.", named));
}

bool is_all_or_none(const Words& words) {
  if (words.size() < 3 || words.size() > 6) return false;
  const bool begins =
      names_hold(std::array<std::string_view, 6>{"all", "none", "both", "neither", "any", "every"}, words[0]);
  if (!begins) return false;
  const std::string_view last = words.back();
  const bool names = names_hold(std::array<std::string_view, 4>{"above", "these", "those", "them"}, last);
  const bool others =
      names_hold(std::array<std::string_view, 4>{"choices", "options", "answers", "correct"}, last) && words[1] == "of";
  const bool letters = words.size() == 4 && words[1].size() == 1 && words[3].size() == 1 &&
                       (words[2] == "and" || words[2] == "nor" || words[2] == "or");
  return (names && words[1] == "of") || others || letters;
}

CheckResult all_or_none(const ExamItem& item) {
  if (item.kind != ItemKind::kChoice) return {};
  std::size_t count = 0;
  std::string named;
  for (const ItemChoice& choice : item.choices) {
    if (!is_all_or_none(folded_words(choice.text))) continue;
    ++count;
    named = choice.text;
  }
  return result_of(static_cast<double>(count), count == 0,
                   fmt::format("The choice \"{}\" speaks of the other choices.", named));
}

// The checks below compare the key with the wrong choices.
bool has_wrong_choices(const ExamItem& item) {
  return item.kind == ItemKind::kChoice && item.key < item.choices.size() && item.choices.size() > 1;
}

template <typename Visit>
void for_wrong(const ExamItem& item, const Visit& visit) {
  for (std::size_t i = 0; i < item.choices.size(); ++i) {
    if (i != item.key) visit(item.choices[i].text);
  }
}

CheckResult longest_is_key(const ExamItem& item) {
  if (!has_wrong_choices(item)) return {};
  const std::size_t key = num_code_points(folded(item.choices[item.key].text));
  std::size_t wrong = 0;
  for_wrong(item, [&](const std::string& text) { wrong = std::max(wrong, num_code_points(folded(text))); });
  const double ratio = wrong == 0 ? 0 : static_cast<double>(key) / static_cast<double>(wrong);
  const bool passed = ratio <= kMostKeyLength || key <= wrong + kLeastKeyExcess;
  return result_of(ratio, passed,
                   fmt::format("The right choice is {:.1f} times as long as the longest wrong one.", ratio));
}

CheckResult cue_words(const ExamItem& item) {
  if (!has_wrong_choices(item)) return {};
  const std::set<std::string> stem = telling_words(item.stem);
  const std::set<std::string> key = telling_words(item.choices[item.key].text);
  std::set<std::string> wrong;
  for_wrong(item, [&](const std::string& text) { wrong.merge(telling_words(text)); });
  std::vector<std::string> cues;
  for (const std::string& word : key) {
    if (stem.contains(word) && !wrong.contains(word)) cues.push_back(word);
  }
  const double share = key.empty() ? 0 : static_cast<double>(cues.size()) / static_cast<double>(key.size());
  return result_of(share, share <= kMostCueShare,
                   fmt::format("The right choice alone repeats words of the stem: {}.", fmt::join(cues, ", ")));
}

bool is_absolute(std::string_view text) {
  const Words words = folded_words(text);
  return std::any_of(words.begin(), words.end(), [](const std::string& word) { return names_hold(kAbsolute, word); });
}

CheckResult absolute_words(const ExamItem& item) {
  if (!has_wrong_choices(item) || item.choices.size() < 3) return {};
  std::size_t count = 0;
  for_wrong(item, [&](const std::string& text) { count += is_absolute(text); });
  const bool passed = is_absolute(item.choices[item.key].text) || count + 1 < item.choices.size();
  return result_of(static_cast<double>(count), passed,
                   "All wrong choices hold a word such as always or never, and the right one does not.");
}

// 'v': a word that "an" precedes, by its first letter; 'c': one that "a" precedes; 0: unknown (a digit, an "h", a "u").
char sound_of(const std::string& text) {
  const Words words = folded_words(text);
  if (words.empty()) return 0;
  const char first = words[0][0];
  if (std::string_view("aeio").find(first) != std::string_view::npos) return 'v';
  return first >= 'b' && first <= 'z' && first != 'h' && first != 'u' ? 'c' : 0;
}

CheckResult grammar_cue(const ExamItem& item) {
  if (!has_wrong_choices(item)) return {};
  const Words words = folded_words(item.stem);
  if (words.empty() || (words.back() != "a" && words.back() != "an")) return {};
  const char wanted = words.back() == "an" ? 'v' : 'c';
  if (sound_of(item.choices[item.key].text) != wanted) return {};
  std::size_t count = 0;
  for_wrong(item, [&](const std::string& text) { count += sound_of(text) != wanted && sound_of(text) != 0; });
  return result_of(
      static_cast<double>(count), count == 0,
      fmt::format("The stem ends in \"{}\", which {} of the wrong choices do not fit.", words.back(), count));
}

// Negations that a reader may miss: in a question that selects ("which ... not"), which is the last sentence, and not
// in capitals. "Why does ice not sink?" asks for a reason and passes.
CheckResult stem_negation(const ExamItem& item) {
  if (item.kind == ItemKind::kTrueFalse || item.kind == ItemKind::kNumeric) return {};
  std::string_view question = item.stem;
  while (!question.empty() && (question.back() == '?' || question.back() == ' ' || question.back() == ':')) {
    question.remove_suffix(1);
  }
  for (const std::string_view end : {". ", "? ", "! ", "\n"}) {
    if (const std::size_t at = question.rfind(end); at != std::string_view::npos)
      question.remove_prefix(at + end.size());
  }
  std::size_t count = 0;
  std::string named;
  const Words words = folded_words(question);
  const bool selects = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "which" || word == "following" || word == "except";
  });
  for (const std::string& word : words) {
    if (!selects || !names_hold(kNegations, word)) continue;
    std::string capitals = word;
    for (char& c : capitals) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    if (question.find(capitals) != std::string_view::npos) continue;
    ++count;
    named = word;
  }
  return result_of(static_cast<double>(count), count == 0,
                   fmt::format("The question turns on \"{}\", which is not in capitals.", named));
}

CheckResult answer_in_stem(const ExamItem& item) {
  if (item.kind != ItemKind::kShortAnswer && !has_wrong_choices(item)) return {};
  const Words stem = folded_words(item.stem);
  std::size_t wrong = 0;
  bool found = false;
  if (item.kind == ItemKind::kShortAnswer) {
    for (const std::string& answer : item.accepted) found = found || holds_words(stem, folded_words(answer));
  } else {
    for_wrong(item, [&](const std::string& text) { wrong += holds_words(stem, folded_words(text)); });
    found = holds_words(stem, folded_words(item.choices[item.key].text)) && wrong == 0;
  }
  return result_of(found ? 1 : 0, !found, "The stem holds the right answer.");
}

}  // namespace

const char* name_of(StructureCheck check) {
  constexpr const char* kNames[kNumStructureChecks] = {
      "complete",  "key_in_set",     "distinct_choices", "all_or_none",   "longest_is_key",
      "cue_words", "absolute_words", "grammar_cue",      "stem_negation", "answer_in_stem"};
  return kNames[static_cast<std::size_t>(check)];
}

std::vector<CheckResult> check_structure(const ExamItem& item, std::size_t expected_choices) {
  return {complete(item, expected_choices),
          key_in_set(item),
          distinct(item),
          all_or_none(item),
          longest_is_key(item),
          cue_words(item),
          absolute_words(item),
          grammar_cue(item),
          stem_negation(item),
          answer_in_stem(item)};
}

double longest_is_key_share(const std::vector<ExamItem>& items) {
  double sum = 0, count = 0;
  for (const ExamItem& item : items) {
    if (!has_wrong_choices(item)) continue;
    const std::size_t key = num_code_points(folded(item.choices[item.key].text));
    std::size_t longer = 0, equal = 1;
    for_wrong(item, [&](const std::string& text) {
      const std::size_t length = num_code_points(folded(text));
      longer += length > key;
      equal += length == key;
    });
    sum += longer > 0 ? 0 : 1.0 / static_cast<double>(equal);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace magister
