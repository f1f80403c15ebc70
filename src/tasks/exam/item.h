// An item of an exam, as the checks and the exports see it, and the words for its fields. Local, no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

enum class ItemKind : std::uint8_t { kChoice, kTrueFalse, kShortAnswer, kNumeric };
enum class ItemDifficulty : std::uint8_t { kUnsaid, kEasy, kMedium, kHard };
// The six levels of Bloom's taxonomy in the revision of Anderson and Krathwohl (2001).
enum class BloomLevel : std::uint8_t { kUnsaid, kRemember, kUnderstand, kApply, kAnalyze, kEvaluate, kCreate };

// "choice", "true_false", "short_answer", "numeric"; "", "easy" ...; "", "remember" ...
const char* name_of(ItemKind kind);
const char* name_of(ItemDifficulty difficulty);
const char* name_of(BloomLevel level);

struct ItemChoice {
  std::string text;
  std::string explanation;  // why it is right or wrong; may be empty
};

// The chunk of the source that an item was written from.
struct CitedChunk {
  std::string path;
  std::uint64_t number = 0;  // of the chunk in its file, from 0
  std::string text;
};

// All texts are UTF-8 and plain: markup in them is shown as typed.
struct ExamItem {
  ItemKind kind = ItemKind::kChoice;
  std::string id;                // unique in the exam: ASCII letters, digits, '-', '_' and '.'
  std::string objective_number;  // "1.1.1.1"; may be empty
  std::string objective_text;
  std::string stem;
  std::vector<ItemChoice> choices;    // kChoice: at least 2. kTrueFalse: exactly 2, first true, then false
  std::size_t key = 0;                // index of the only right one in `choices`
  std::vector<std::string> accepted;  // kShortAnswer: at least 1, each worth all points
  double value = 0, tolerance = 0;    // kNumeric: right within value +- tolerance
  std::string explanation;            // of the whole item; may be empty
  ItemDifficulty difficulty = ItemDifficulty::kUnsaid;
  BloomLevel bloom = BloomLevel::kUnsaid;
  CitedChunk cited;
};

// 'A', 'B', ... for the choices 0 to 25.
char choice_letter(std::size_t index);

// The right answer in words: of choices "B", "True" or "False"; the accepted answers joined by " / "; "5" or
// "5 ± 0.1".
std::string right_answer(const ExamItem& item);
// The shortest decimals that read back as the same double; an exponent without a plus sign, as 6.02e23.
std::string shortest_number(double value);

}  // namespace magister
