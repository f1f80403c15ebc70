// ObjectiveRun: the items of one objective, from their first prompt until each is accepted or given up. It goes in
// rounds: every open item is written, then all that have the right form are checked, then those that were refused are
// written again with the reasons. It knows no model: it gives requests and takes answers, in any order within a round,
// and what comes out depends on the answers alone. The number of rounds is bounded by ExamBounds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/generator.h"
#include "magister/tasks/judge/reader.h"
#include "tasks/exam/config.h"
#include "tasks/exam/duplicates.h"
#include "tasks/exam/prompts.h"
#include "tasks/exam/versions.h"

namespace magister {

// Everything that the runs of all objectives share.
struct ExamRules {
  const ExamConfig& config;
  const ExamPrompts& prompts;  // of the model that writes
  const ExamPrompts& checks;   // of the model that answers the checks
  std::function<const Constraint*(const ItemForm& form)> constraint;
  // The text of tokens that were written after the objective's first prompt.
  std::function<std::string(std::span<const TokenId> prompt, std::span<const TokenId> tokens)> text_of;
  std::uint64_t numbers = 0;  // ExamShape::numbers()
};

// An objective with the passages that bear on it.
struct ExamTopic {
  std::uint64_t number_in_exam = 0;  // its record
  std::string number, text;
  std::vector<std::string> passages;
  std::vector<std::size_t> chunks;  // their numbers in the source
};

// The fields of the prompt that writes an item. Of `previous`, null for the first attempt, and `avoid` as much as is
// given.
nlohmann::ordered_json writing_fields(const ExamTopic& topic, const AskedItem& asked);

// True for the requests whose answers are the model's verdicts, false for those that write.
bool is_check(const GenerationRequest& request);

class ObjectiveRun {
 public:
  // Keeps a reference to rules. first_prompt: of item 0, as it is stored with the results.
  ObjectiveRun(const ExamRules& rules, ExamTopic topic, std::vector<TokenId> first_prompt);

  // The requests of the first round.
  std::vector<GenerationRequest> begin();
  // Takes an answer and returns the requests that follow from it; empty if others of the round are missing, or if the
  // objective is done. Requests refer to this object and to the rules.
  std::vector<GenerationRequest> take(Generation&& answer);
  bool done() const { return pending_ == 0; }
  // All versions of all items, by item and attempt; complete when done.
  const std::vector<std::vector<ItemVersion>>& items() const { return items_; }
  const ExamTopic& topic() const { return topic_; }

 private:
  struct Check {
    ExamPrompt prompt;
    std::size_t index;  // of the order, of the wrong choice, or of the other item and the order
    JudgedPrompt judged;
  };
  struct Progress {  // of an item
    bool open = true;
    std::uint64_t malformed = 0, invalid = 0, unclear = 0;  // refusals so far
    std::vector<Check> checks;                              // of its newest version
  };
  ItemVersion& newest(std::size_t item) { return items_[item].back(); }
  std::vector<GenerationRequest> write_open();
  std::vector<TokenId> writing_prompt(std::size_t item) const;
  void take_text(std::size_t item, Generation&& answer);
  std::vector<GenerationRequest> after_writing();
  std::vector<std::size_t> near_items(std::size_t item) const;
  bool repeats(std::size_t item) const;
  void add_pair_checks(std::size_t item, bool& fits);
  void refuse(std::size_t item, std::uint32_t reasons);
  void add_checks(std::size_t item);
  GenerationRequest request(std::size_t item, std::size_t check) const;
  std::vector<GenerationRequest> after_checking();
  void read_checks(std::size_t item);

  const ExamRules& rules_;
  const ExamTopic topic_;
  const std::vector<TokenId> first_prompt_;
  std::vector<std::vector<ItemVersion>> items_;
  std::vector<Progress> progress_;
  bool checking_ = false;
  std::uint64_t pending_ = 0;  // answers that the round still needs
};

}  // namespace magister
