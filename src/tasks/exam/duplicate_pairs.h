// Items of different objectives that may ask the same thing: MinHash finds them, and a model, asked in both orders,
// confirms them. Local.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/generator.h"
#include "magister/tasks/judge/reader.h"
#include "tasks/exam/prompts.h"
#include "tasks/exam/written_exam.h"

namespace magister {

// Requests have the record kPairRecords + number of the pair, and the order, 0 or 1, as sample.
inline constexpr std::uint64_t kPairRecords = 1ull << 41;

// Two accepted items as indexes of versions, first < second. Equal texts, and prompts longer than most_tokens, are not
// asked about: their log-odds are NaN, and the similarity decides.
struct ExamPair {
  std::size_t first = 0, second = 0;
  double similarity = 0;
  float log_odds = 0;  // that both ask the same, mean of both orders, nats
};

// The fields of the prompt that asks if two items are the same.
nlohmann::ordered_json same_fields(const ExamItem& one, const ExamItem& other);
// True if no model needs to say that these items are the same.
bool say_the_same(const ExamItem& one, const ExamItem& other);

// Asks about the pairs, as VerdictReader does: it gives requests and takes answers in any order.
class PairCheck {
 public:
  // Keeps references. least: similarity from which on two items may be duplicates.
  PairCheck(const std::vector<ExamVersion>& versions, const ExamPrompts& prompts, double least,
            std::uint64_t most_tokens);

  std::vector<GenerationRequest> begin() const;
  std::vector<GenerationRequest> take(const Generation& answer);
  // The pairs with their log-odds, when no request is left.
  std::vector<ExamPair> pairs() const;

 private:
  GenerationRequest request(std::size_t pair, std::size_t order) const;

  const VerdictReader& reader_;
  std::vector<ExamPair> pairs_;
  std::vector<std::vector<JudgedPrompt>> asked_;  // by pair: both orders, or none
};

// The pairs as bytes of a file, bound to the accepted items, and back: nullopt for bytes that are of other items.
std::string pairs_as_text(const std::vector<ExamPair>& pairs, const std::vector<ExamVersion>& versions);
std::optional<std::vector<ExamPair>> read_pairs(const std::string& bytes, const std::vector<ExamVersion>& versions);

// Of two accepted items that ask the same the later one is rejected; its version says which item it repeats.
void reject_duplicates(std::vector<ExamVersion>& versions, const std::vector<ExamPair>& pairs, double most_log_odds);

}  // namespace magister
