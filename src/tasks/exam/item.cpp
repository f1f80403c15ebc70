#include "tasks/exam/item.h"

#include <fmt/format.h>

#include "magister/core/error.h"

namespace magister {

const char* name_of(ItemKind kind) {
  constexpr const char* kNames[] = {"choice", "true_false", "short_answer", "numeric"};
  return kNames[static_cast<std::size_t>(kind)];
}

const char* name_of(ItemDifficulty difficulty) {
  constexpr const char* kNames[] = {"", "easy", "medium", "hard"};
  return kNames[static_cast<std::size_t>(difficulty)];
}

const char* name_of(BloomLevel level) {
  constexpr const char* kNames[] = {"", "remember", "understand", "apply", "analyze", "evaluate", "create"};
  return kNames[static_cast<std::size_t>(level)];
}

char choice_letter(std::size_t index) {
  MAGISTER_ASSERT(index < 26);
  return static_cast<char>('A' + index);
}

std::string shortest_number(double value) {
  std::string number = fmt::format("{}", value);
  if (const std::size_t at = number.find("e+"); at != std::string::npos) number.erase(at + 1, 1);
  return number;
}

std::string right_answer(const ExamItem& item) {
  switch (item.kind) {
    case ItemKind::kChoice:
      return std::string(1, choice_letter(item.key));
    case ItemKind::kTrueFalse:
      return item.key == 0 ? "True" : "False";
    case ItemKind::kShortAnswer:
      return fmt::format("{}", fmt::join(item.accepted, " / "));
    case ItemKind::kNumeric:
      break;
  }
  if (item.tolerance == 0) return shortest_number(item.value);
  return shortest_number(item.value) + " ± " + shortest_number(item.tolerance);
}

}  // namespace magister
