// Checks of an item's form, without a model: each a number and a verdict with its reason in words. The rules are those
// of item-writing guides (Haladyna, Downing & Rodriguez, 2002) as far as they can be computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/exam/item.h"

namespace magister {

enum class StructureCheck : std::uint8_t {
  kComplete,         // empty stem, choices, answers, or too few or many of them: their number; 0 passes
  kKeyInSet,         // 1 if the key is not one of the choices, or a value is not finite; 0 passes
  kDistinctChoices,  // pairs of choices or accepted answers that are equal after NFKC and case folding; 0 passes
  kAllOrNone,        // choices such as "all of the above"; 0 passes
  kLongestIsKey,     // characters of the key over those of the longest wrong choice; up to kMostKeyLength passes
  // Words by which the key, and no wrong choice, repeats the stem, as a share of its words; up to kMostCueShare passes.
  kCueWords,
  kAbsoluteWords,  // wrong choices with always, never, ..., if the key has none and all wrong ones have; 0 passes
  kGrammarCue,     // wrong choices that do not fit an "a" or "an" at the stem's end, if the key fits it; 0 passes
  kStemNegation,   // negations in a question "which ... not" that are not written in capitals; 0 passes
  kAnswerInStem,   // 1 if the stem holds the right answer as whole words; 0 passes
};
inline constexpr std::size_t kNumStructureChecks = 10;
const char* name_of(StructureCheck check);

inline constexpr double kMostKeyLength = 1.6;  // and more than kLeastKeyExcess characters longer
inline constexpr std::size_t kLeastKeyExcess = 12;
inline constexpr double kMostCueShare = 0.5;

struct CheckResult {
  double number = 0;
  bool passed = true;
  std::string reason;  // a sentence for the next attempt; empty if passed
};

// In the order of StructureCheck; checks that do not apply to the item's kind pass with 0. expected_choices: of
// kChoice; 0: any number from 2 to 26.
std::vector<CheckResult> check_structure(const ExamItem& item, std::size_t expected_choices);

// The share of items of the kind choice whose key is the longest choice (ties count in parts); 0 without such items.
double longest_is_key_share(const std::vector<ExamItem>& items);

}  // namespace magister
