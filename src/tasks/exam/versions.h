// Versions of items: what is asked for each item, what was written, what the checks found, and why a version was not
// accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "tasks/exam/columns.h"
#include "tasks/exam/config.h"
#include "tasks/exam/item_text.h"
#include "tasks/exam/structure_checks.h"

namespace magister {

// Why a version was not accepted, as bits of a number: 1 << reason. The structure's checks begin at kStructure, those
// with the model at kChecks.
enum class ExamReason : std::uint8_t {
  kCutOff = 0,      // max_new_tokens ended it
  kStructure = 1,   // + StructureCheck
  kRepeated = 11,   // an item of the same objective says nearly the same
  kUnchanged = 12,  // the rewritten version is the old one
  kTooLong = 13,    // a prompt of its checks would be longer than max_prompt_length
  kChecks = 14,     // + ExamCheck
  kDuplicate = 20,  // an item of another objective says nearly the same
};
inline constexpr std::uint32_t bit_of(ExamReason reason, std::size_t offset = 0) {
  return 1u << (static_cast<std::size_t>(reason) + offset);
}

// The wish for an item: a function of the experiment, the objective's number in the exam and the item's.
struct AskedItem {
  ItemForm form;
  ItemDifficulty difficulty = ItemDifficulty::kMedium;
  BloomLevel bloom = BloomLevel::kUnsaid;
};
AskedItem asked_item(const ExamConfig& config, std::size_t passages, std::uint64_t objective, std::uint64_t item);

struct ItemVersion {
  std::uint32_t item = 0, attempt = 0;
  std::vector<TokenId> tokens;
  std::string text;
  std::optional<WrittenItem> written;  // nullopt: cut off
  ExamState state = ExamState::kNone;
  std::uint32_t reasons = 0;
  std::int32_t bloom = -1;     // level that the model names, from 0; -1: not measured
  std::int32_t near = -1;      // item of the objective that it may repeat; -1: none
  std::vector<float> numbers;  // [ExamShape::numbers()]; NaN: not measured

  float& number(ExamNumber which) { return numbers[static_cast<std::size_t>(which)]; }
  float number(ExamNumber which) const { return numbers[static_cast<std::size_t>(which)]; }
};

// The reasons as the next attempt is told them.
std::vector<std::string> reasons_in_words(const ItemVersion& version, std::uint64_t choices);
// Bits of the structure's checks that the item fails.
std::uint32_t structure_reasons(const ExamItem& item, std::uint64_t choices);
// Bits of the checks whose numbers do not pass and that reject, and kRepeated.
std::uint32_t check_reasons(const ItemVersion& version, const ExamLimits& limits);
// Bits of all checks whose numbers do not pass.
std::uint32_t failed_checks(const ItemVersion& version, ExamLimits limits, std::uint64_t choices);
// Which difficulty the probability of a right blind answer means: from 0.8 on easy, from 0.5 on medium, else hard.
ItemDifficulty measured_difficulty(float blind);

}  // namespace magister
