// ObjectiveWriter: the learning objectives of `objectives.auto`, written from passages of the source that lie evenly
// over it. In rounds: every objective that is missing is written from a passage of its part, then those that have no
// words or say nearly the same as another are written again from the next passage. It knows no model, and what comes
// out depends on the answers alone, so every group computes the same list. Local.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/generator.h"
#include "tasks/exam/objectives.h"
#include "tasks/exam/source.h"

namespace magister {

struct ExamSetup;

// Requests have the record kObjectiveRecords + number of the objective, and the attempt as sample.
inline constexpr std::uint64_t kObjectiveRecords = 1ull << 40;
// Bytes of an objective's text, with which the results keep it.
inline constexpr std::size_t kObjectiveBytes = 1024;

// JSON schema of the reply.
std::string objective_schema();
// "1.1", "1.2", ...: the number of the objective with this index.
std::string auto_number(std::size_t index);
// The passage from which attempt `attempt` at objective `index` of `count` is written: the part of the objective has
// chunks index * C / count to (index + 1) * C / count, which take turns.
std::size_t passage_of_objective(std::size_t index, std::size_t count, std::size_t num_chunks, std::uint64_t attempt);
// The fields of the prompt. avoid: objectives that exist.
nlohmann::ordered_json objective_fields(const std::string& passage, const std::vector<std::string>& avoid);

class ObjectiveWriter {
 public:
  // Keeps a reference to setup.
  explicit ObjectiveWriter(const ExamSetup& setup);

  std::vector<GenerationRequest> begin() { return write_missing(); }
  // Takes an answer and returns the requests that follow from it, after the last answer of a round.
  std::vector<GenerationRequest> take(const Generation& answer);
  // The tokens before a text that is being written, which decide how it is decoded.
  const std::vector<TokenId>& prompt_of(std::uint64_t record) const { return prompts_.at(record - kObjectiveRecords); }
  // The list when no request is left; the text of an objective that stays missing is empty.
  const std::vector<ExamObjective>& objectives() const { return objectives_; }

 private:
  std::vector<GenerationRequest> write_missing();
  std::vector<TokenId> prompt(std::size_t index) const;
  bool is_new(const std::string& text) const;

  const ExamSetup& setup_;
  std::vector<ExamObjective> objectives_;
  std::vector<std::string> written_;           // the texts of this round
  std::vector<std::vector<TokenId>> prompts_;  // of this round
  std::uint64_t attempt_ = 0, pending_ = 0;
};

// The list as a file that `objectives.path` takes, each objective below a comment that cites its passage. Objectives
// without a text are left out.
std::string objective_list(const std::vector<ExamObjective>& objectives, const std::vector<SourceChunk>& chunks);
// The same as JSON: {number, text, path, passage}.
std::string objective_list_json(const std::vector<ExamObjective>& objectives, const std::vector<SourceChunk>& chunks);

}  // namespace magister
