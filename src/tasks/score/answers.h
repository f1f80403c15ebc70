// The texts of a generate task (`answers`), for a verifier or a reward model. The texts of a record are consecutive
// samples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "magister/run/task.h"
#include "magister/run/unit_writer.h"
#include "magister/runtime/written_text.h"
#include "magister/tasks/generate/record_answers.h"
#include "tasks/score/config.h"

namespace magister {

class ScoredAnswers {
 public:
  // Columns about the texts in addition to their scores, one number per text.
  struct Columns {
    std::vector<std::uint32_t> num_tokens;
    std::vector<float> guide_kl, flops;
  };

  // Throws Error(kConfig) if there is no such task. config is kept by reference.
  ScoredAnswers(const ScoreConfig& config, const TaskInputs& inputs);

  bool exist() const;  // true: the task has run
  // Opens the texts and checks them. Collective over the world.
  void open();
  Attributes identity() const;

  // Before the task has run, each record has one empty text: then only the records are checked.
  std::uint64_t texts_a_record() const { return texts_ ? texts_->texts_a_record() : 1; }
  std::vector<std::string> of(const Record& record) const;
  std::vector<WrittenText> written(const Record& record) const;
  TokenizerIdentity tokenizer() const { return texts_ ? texts_->tokenizer() : TokenizerIdentity(); }
  std::vector<ColumnSpec> specs(std::uint64_t num_samples) const;
  // texts: the range of the texts of the record to add.
  void add(const Record& record, IndexRange texts, Columns& columns) const;
  void append(const Columns& columns, std::vector<ColumnBytes>& to) const;

 private:
  std::string path() const;

  const ScoreConfig& config_;
  const TaskInputs inputs_;
  std::optional<RecordAnswers> texts_;
};

// Calls body with each record of the unit's samples and the range of its texts that are in the unit. group: texts per
// record. Local.
void for_records_of(const Unit& unit, std::uint64_t group, const Dataset& dataset,
                    const std::function<void(const Record&, IndexRange)>& body);

}  // namespace magister
