// See versions.h.
#include "tasks/exam/versions.h"

#include <cmath>

namespace magister {
namespace {

// In the order of ExamCheck.
constexpr const char* kCheckReasons[kNumExamChecks] = {
    "Who reads the passages does not choose the marked answer: the question or its answer is not clear.",
    "The question can be answered without the passages.",
    "Another choice is right, too.",
    "The passage does not say that the answer is right.",
    "The question does not test the learning objective.",
    "The question is not worded clearly, or gives its answer away."};

}  // namespace

AskedItem asked_item(const ExamConfig& config, std::size_t passages, std::uint64_t objective, std::uint64_t item) {
  const std::uint64_t number = objective * config.items + item;
  AskedItem asked;
  asked.form = {config.kinds[item % config.kinds.size()], config.choices, passages};
  // Multiples of the golden ratio modulo 1 divide every run of items nearly by the shares.
  const double place = std::fmod((static_cast<double>(number) + 0.5) * 0.6180339887498949, 1.0);
  asked.difficulty = place < config.difficulty[0]                          ? ItemDifficulty::kEasy
                     : place < config.difficulty[0] + config.difficulty[1] ? ItemDifficulty::kMedium
                                                                           : ItemDifficulty::kHard;
  if (config.bloom) asked.bloom = static_cast<BloomLevel>(1 + number % 6);
  return asked;
}

std::vector<std::string> reasons_in_words(const ItemVersion& version, std::uint64_t choices) {
  std::vector<std::string> words;
  const auto add = [&](ExamReason reason, const char* text) {
    if ((version.reasons & bit_of(reason)) != 0) words.emplace_back(text);
  };
  add(ExamReason::kCutOff, "It was too long and was cut off.");
  if (version.written) {
    const auto results = check_structure(version.written->item, choices);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if ((version.reasons & bit_of(ExamReason::kStructure, i)) != 0) words.push_back(results[i].reason);
    }
  }
  add(ExamReason::kRepeated, "Another question of this objective asks nearly the same.");
  add(ExamReason::kUnchanged, "It is the same as the attempt before.");
  add(ExamReason::kTooLong, "It is too long to be checked.");
  for (std::size_t i = 0; i < kNumExamChecks; ++i) {
    if ((version.reasons & bit_of(ExamReason::kChecks, i)) != 0) words.emplace_back(kCheckReasons[i]);
  }
  add(ExamReason::kDuplicate, "A question of another objective asks nearly the same.");
  return words;
}

std::uint32_t structure_reasons(const ExamItem& item, std::uint64_t choices) {
  std::uint32_t reasons = 0;
  const auto results = check_structure(item, item.kind == ItemKind::kChoice ? choices : 0);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].passed) reasons |= bit_of(ExamReason::kStructure, i);
  }
  return reasons;
}

std::uint32_t check_reasons(const ItemVersion& version, const ExamLimits& limits) {
  std::uint32_t reasons = 0;
  // A number that was not measured fails no check.
  const auto check = [&](ExamCheck which, bool fails) {
    if (fails && limits.rejects[static_cast<std::size_t>(which)])
      reasons |= bit_of(ExamReason::kChecks, static_cast<std::size_t>(which));
  };
  const auto below = [&](ExamNumber number, double least) { return version.number(number) < least; };
  check(ExamCheck::kBlind, below(ExamNumber::kBlind, limits.blind) || below(ExamNumber::kBlindRight, 1.0));
  check(ExamCheck::kClosedBook, version.number(ExamNumber::kClosedBook) > limits.closed_book);
  check(ExamCheck::kSingleKey, version.number(ExamNumber::kSingleKey) > limits.log_odds);
  check(ExamCheck::kSupport, below(ExamNumber::kSupport, limits.log_odds));
  check(ExamCheck::kAlignment, below(ExamNumber::kAlignment, limits.log_odds));
  check(ExamCheck::kWording, below(ExamNumber::kWording, limits.log_odds));
  if (version.number(ExamNumber::kSame) > limits.log_odds) reasons |= bit_of(ExamReason::kRepeated);
  return reasons;
}

std::uint32_t failed_checks(const ItemVersion& version, ExamLimits limits, std::uint64_t choices) {
  limits.rejects.fill(true);
  const std::uint32_t structure = version.written ? structure_reasons(version.written->item, choices) : 0;
  return version.reasons | structure | check_reasons(version, limits);
}

ItemDifficulty measured_difficulty(float blind) {
  if (std::isnan(blind)) return ItemDifficulty::kUnsaid;
  return blind >= 0.8f ? ItemDifficulty::kEasy : blind >= 0.5f ? ItemDifficulty::kMedium : ItemDifficulty::kHard;
}

}  // namespace magister
