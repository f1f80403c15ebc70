// Files of `exam`. During a run every objective has slots for all versions that its items can have, in
// <name>.running.h5. When all objectives are done, the versions are packed into <name>.h5, one sample per version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/run/unit_writer.h"

namespace magister {

// The running file: N objectives with n items of V versions of S tokens each. kSlotId is [N, n V S], kSlotNumber
// [N, n V K], kPassage [N, passages], kWrittenObjective [N, kObjectiveBytes], the others are [N, n V].
namespace exam_column {
inline constexpr Column<TokenId> kSlotId{"/exam/slot_id", "tokens of the versions, each in its slots"};
inline constexpr Column<std::uint32_t> kSlotLength{"/exam/slot_length", "used slots; 0: there is no such version"};
inline constexpr Column<std::uint8_t> kSlotState{"/exam/slot_state", "ExamState"};
inline constexpr Column<std::uint32_t> kSlotReasons{"/exam/slot_reasons", "bits of ExamReason"};
inline constexpr Column<std::int32_t> kSlotBloom{"/exam/slot_bloom", "level that the model names; -1: not asked"};
inline constexpr Column<std::int32_t> kSlotNear{"/exam/slot_near",
                                                "item of the objective that it may repeat; -1: none"};
inline constexpr Column<float> kSlotNumber{"/exam/slot_number", "numbers of the checks, see ExamNumbers"};
inline constexpr Column<std::int32_t> kPassage{"/exam/passage", "passages of the objective, best first; -1: no more"};
// Only for objectives that the model writes.
inline constexpr Column<std::uint8_t> kWrittenObjective{"/exam/written_objective", "its text, UTF-8, filled with 0"};

// The packed file: one sample per version, in the order of objectives, items and versions.
inline constexpr Column<std::string> kObjective{"/items/objective", "number of the learning objective"};
inline constexpr Column<std::string> kObjectiveText{"/items/objective_text", "the learning objective"};
inline constexpr Column<std::uint32_t> kItem{"/items/item", "number of the item within its objective, from 0"};
inline constexpr Column<std::uint32_t> kAttempt{"/items/attempt", "number of the version of the item, from 0"};
inline constexpr Column<std::int32_t> kParent{"/items/parent", "the version that this one replaces; -1: none"};
inline constexpr Column<std::uint64_t> kSeed{"/items/seed", "the key of its draws with objective, item and attempt"};
inline constexpr Column<std::uint8_t> kKind{"/items/kind", "0: choice; 1: true_false; 2: short_answer; 3: numeric"};
inline constexpr Column<std::uint8_t> kState{
    "/items/state", "0: accepted, in the exam; 1: rewritten, a later version replaces it; 2: rejected"};
inline constexpr Column<std::uint32_t> kReasons{"/items/reasons", "bits: why it was not accepted; text: /items/reason"};
inline constexpr Column<std::string> kReason{"/items/reason", "the same in words, as the next attempt was told"};
inline constexpr Column<std::string> kStem{"/items/stem", "the question; empty if the text is no item"};
inline constexpr Column<std::string> kChoices{"/items/choices", "choices in the exam's order, or accepted answers",
                                              "JSON"};
inline constexpr Column<std::int32_t> kKey{"/items/key", "place of the right choice, from 0; -1: no choices"};
inline constexpr Column<std::string> kAnswer{"/items/answer", "the right answer in words"};
inline constexpr Column<std::string> kExplanation{"/items/explanation", "why it is right"};
inline constexpr Column<std::string> kRepeats{"/items/repeats", "the item whose words it nearly has; empty: none"};
inline constexpr Column<std::string> kSource{"/items/source", "the cited passage: file, and its number in the file",
                                             "JSON"};
inline constexpr Column<std::uint8_t> kAskedDifficulty{"/items/asked_difficulty", "1: easy; 2: medium; 3: hard"};
inline constexpr Column<std::uint8_t> kDifficulty{
    "/items/difficulty", "by the blind probability: 1: easy, 2: medium, 3: hard; 0: not measured"};
inline constexpr Column<std::uint8_t> kAskedBloom{"/items/asked_bloom", "1: remember ... 6: create; 0: none was asked"};
inline constexpr Column<std::uint8_t> kBloom{"/items/bloom", "the level that the model names; 0: not measured"};
// Not measured: NaN.
inline constexpr Column<float> kBlind{
    "/checks/blind", "probability of the key among the answers, given the passages; mean over all orders"};
inline constexpr Column<float> kBlindRight{"/checks/blind_right",
                                           "share of the orders in which the key is the most probable answer"};
inline constexpr Column<float> kClosedBook{"/checks/closed_book", "the same probability without the passages"};
inline constexpr Column<float> kSingleKey{"/checks/single_key", "that the best wrong choice is right: log-odds", "nat"};
inline constexpr Column<float> kSupport{"/checks/support", "that the cited passage supports the answer: log-odds",
                                        "nat"};
inline constexpr Column<float> kAlignment{"/checks/alignment", "that the item tests the objective: log-odds", "nat"};
inline constexpr Column<float> kWording{"/checks/wording", "that the item is worded clearly: log-odds", "nat"};
inline constexpr Column<float> kSame{"/checks/same",
                                     "that it asks the same as /items/repeats: log-odds, mean of both orders", "nat"};
inline constexpr Column<float> kStructure{
    "/checks/structure",
    "numbers of the checks of the form: complete, key_in_set, distinct_choices, all_or_none, longest_is_key, "
    "cue_words, absolute_words, grammar_cue, stem_negation, answer_in_stem; NaN: the text is no item"};
inline constexpr Column<std::uint32_t> kFailed{
    "/checks/failed",
    "bits as in /items/reasons: every check whose number does not pass, also those that only measure"};
inline constexpr Column<float> kBloomProbability{"/checks/bloom_probability", "of the level that the model names"};
inline constexpr Column<float> kMass{
    "/checks/mass", "least probability of all possible answers together, over the checks; near 0: they mean little"};
inline constexpr Column<float> kLetters{
    "/checks/letters", "log-probability of each letter in each order: row r begins with choice r, the key is choice 0",
    "nat"};
inline constexpr Column<float> kDistractors{"/checks/distractors", "that each wrong choice is right: log-odds", "nat"};
}  // namespace exam_column

enum class ExamState : std::uint8_t { kNone, kAccepted, kRewritten, kRejected };

// Places in a row of kSlotNumber; then choices^2 letters and choices - 1 distractors.
enum class ExamNumber : std::uint8_t {
  kBlind,
  kBlindRight,
  kClosedBook,
  kSingleKey,
  kSupport,
  kAlignment,
  kWording,
  kBloomProbability,
  kMass,
  kSame
};
inline constexpr std::size_t kNumExamNumbers = 10;

// N objectives with T tokens of first prompts; key_bytes: width of /samples/key.
struct ExamShape {
  std::uint64_t num_objectives = 0, num_tokens = 0, key_bytes = 1;
  std::uint64_t items = 1, versions = 1, slots = 1, choices = 4, passages = 1;
  bool writes_objectives = false;
  std::uint64_t rows() const { return items * versions; }
  std::uint64_t numbers() const { return kNumExamNumbers + choices * choices + choices - 1; }
};

std::vector<ColumnSpec> exam_running_columns(const ExamShape& shape);

// The rules that `check` applies to a packed exam.
extern const ResultsSchema kExamSchema;

}  // namespace magister
