// The keys of `task: exam`. configs/keys/exam.md lists each with default and range; keep the two in step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/engine/sampler.h"
#include "magister/experiment/config.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/text_keys.h"
#include "tasks/exam/item.h"

namespace magister {

// A check whose failure rejects a version of an item; the others are only measured.
enum class ExamCheck : std::uint8_t { kBlind, kClosedBook, kSingleKey, kSupport, kAlignment, kWording };
inline constexpr std::size_t kNumExamChecks = 6;
// "blind", "closed_book", ...
const char* name_of(ExamCheck check);

// The limits of the checks. Log-odds are in nats.
struct ExamLimits {
  std::array<bool, kNumExamChecks> rejects{};  // by ExamCheck
  double blind = 0.5;                          // least mean probability of the key among the answers
  double closed_book = 0.9;                    // most, likewise without the passages
  double log_odds = 0;                         // least for support, alignment and wording; most for a wrong choice
  double duplicate = 0.7;                      // from this similarity on the later of two items is a duplicate
};

// Attempts per item until it is given up.
struct ExamBounds {
  std::uint64_t generate = 5;  // that the structure of an item refuses
  std::uint64_t validate = 3;  // that a check with the model refuses
  std::uint64_t review = 5;    // whose wording is refused
  // Versions that an item can have.
  std::uint64_t versions() const { return generate + validate + review - 2; }
};

struct ExamConfig : TextLengths, BatchKeys {
  std::string name = "exam";
  ModelSection model;
  std::uint64_t seed = 0;
  std::vector<std::string> source;   // paths and patterns
  std::uint64_t passage_tokens = 0;  // most tokens of a passage
  std::uint64_t passages = 0;        // per objective
  std::string source_place, objectives_place;
  std::string objectives;             // path; empty: the model writes them from the source
  std::uint64_t auto_objectives = 0;  // their number then
  std::uint64_t items = 0;            // per objective
  std::vector<ItemKind> kinds;
  std::uint64_t choices = 4;
  std::array<double, 3> difficulty{};  // shares of easy, medium, hard
  bool bloom = true;
  ExamLimits limits_of_checks;
  std::optional<ModelSection> validator;  // answers the checks; none: the model that writes the items
  ExamBounds bounds;
  SamplingParams sampling;
  bool use_chat_template = true;
  std::vector<std::string> exports;
  std::string title;

  // Tokens that later prompts may have more than the first one: the item itself, and the reasons.
  std::uint64_t reserve() const { return max_new_tokens.tokens() + 256; }
};

ExamConfig read_exam_config(ConfigNode& node, const ExperimentConfig& experiment);
// Defined in src/tasks/exam/task.cpp.
TaskKind exam_task();

}  // namespace magister
