// See verify.h.
#include "text/math/verify.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "text/math/compare.h"

namespace magister::math {
namespace {

std::string without_spaces(std::string_view text) {
  std::string out(text);
  std::erase_if(out, [](unsigned char c) { return std::isspace(c) != 0; });
  return out;
}

std::uint64_t hash_of(std::string_view gold, std::string_view answer) {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::string_view text : {gold, std::string_view("\0", 1), answer})
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// Returns "yes" for "\text{Yes}" and "Yes"; empty if there are no words, or other signs too.
std::string words_of(std::string_view formula) {
  for (const std::string_view command : {"\\text{", "\\textbf{", "\\mathrm{", "\\mbox{", "\\textit{"})
    if (formula.starts_with(command) && formula.ends_with("}"))
      formula = formula.substr(command.size(), formula.size() - command.size() - 1);
  std::string words;
  for (const char c : formula) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c != ' ' && c != '.') {
      return "";
    }
  }
  return words;
}

// Returns "C" for "C", "(C)" and "$\text{(C)}$", but not for "$C$", which may be a variable; 0: not the letter of a
// choice.
char choice_of(std::string_view text) {
  if (text.size() > 60) return '\0';
  std::string letters = without_spaces(text);
  const bool upright = letters.find('(') != std::string::npos || letters.find("\\text") != std::string::npos ||
                       letters.find("\\math") != std::string::npos;
  if (letters.find('$') != std::string::npos && !upright) return '\0';
  for (const std::string_view around : {"$", "\\boxed{", "\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "}"})
    for (std::size_t at = letters.find(around); at != std::string::npos; at = letters.find(around))
      letters.erase(at, around.size());
  std::erase_if(letters, [](char c) { return c == '(' || c == ')' || c == '.' || c == '*'; });
  return letters.size() == 1 && letters[0] >= 'A' && letters[0] <= 'J' ? letters[0] : '\0';
}

// Returns the first letter from A to J that stands alone within 50 bytes after the last "answer", else one at the end
// or the beginning of the text; 0: none.
char chosen_in(std::string_view text) {
  const auto letter_at = [&](std::size_t at) {
    const auto joins = [&](std::size_t place) {
      return place < text.size() && (std::isalnum(static_cast<unsigned char>(text[place])) != 0 ||
                                     std::string_view("+-=^/").find(text[place]) != std::string_view::npos);
    };
    const bool alone = text[at] >= 'A' && text[at] <= 'J' && !(at > 0 && joins(at - 1)) && !joins(at + 1);
    // "A" may also be the article.
    return alone && !(text[at] == 'A' && at + 2 < text.size() && text[at + 1] == ' ' &&
                      std::islower(static_cast<unsigned char>(text[at + 2])) != 0);
  };
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (const std::size_t word = low.rfind("answer"); word != std::string::npos)
    for (std::size_t at = word + 6; at < std::min(text.size(), word + 56); ++at)
      if (letter_at(at)) return text[at];
  std::size_t last = text.size();
  while (last > 0 && std::isalnum(static_cast<unsigned char>(text[last - 1])) == 0) --last;
  if (last > 0 && letter_at(last - 1)) return text[last - 1];
  return !text.empty() && letter_at(0) ? text[0] : '\0';
}

}  // namespace

char chosen_letter(std::string_view gold, std::string_view answer) {
  return choice_of(gold) != '\0' && answer.find("\\boxed") == std::string_view::npos ? chosen_in(answer) : '\0';
}

Verdict verify(std::string_view gold, std::string_view answer) {
  Verdict verdict;
  verdict.gold = read_gold(gold);
  verdict.answer = read_answer(answer);
  if (const char letter = chosen_letter(gold, answer); letter != '\0') {
    verdict.answer = {std::string(1, letter), nullptr, "", Unread::kNone};
    verdict.right = choice_of(gold) == letter;
    verdict.why = "the letter of a choice";
    return verdict;
  }
  const Reading &of_gold = verdict.gold, &of_answer = verdict.answer;
  if (!of_gold.formula.empty() && without_spaces(of_gold.formula) == without_spaces(of_answer.formula)) {
    verdict.right = true;
    verdict.why = "the same text";
  } else if (const std::string words = words_of(of_gold.formula);
             words.size() > 1 && words == words_of(of_answer.formula)) {
    verdict.right = true;
    verdict.why = "the same words";
  } else if (!of_gold.tree) {
    verdict.why = "the gold answer is not read: " + of_gold.fault;
    verdict.unread = Unread::kGold;
  } else if (!of_answer.tree) {
    verdict.why = "the answer is not read: " + of_answer.fault;
    verdict.unread = of_answer.unread;
  } else {
    Comparer comparer(hash_of(of_gold.formula, of_answer.formula));
    Comparison found = comparer.compare(of_gold.tree, of_answer.tree);
    verdict.right = found.equal;
    verdict.why = std::move(found.why);
    verdict.unread = found.unread;
  }
  return verdict;
}

}  // namespace magister::math
