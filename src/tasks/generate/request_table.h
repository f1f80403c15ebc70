// The requests of a batch file by record: what each asks for beyond its chat. 20 bytes a record, and once every
// different combination of keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/engine/constraint.h"
#include "magister/io/dataset/dataset.h"
#include "magister/runtime/stop.h"
#include "magister/runtime/stop_rules.h"
#include "magister/text/tokenizer.h"
#include "tasks/generate/config.h"
#include "tasks/generate/openai_request.h"

namespace magister {

struct RequestKind {
  RequestSettings settings;
  StopRules stops;                               // of task, model and request
  std::shared_ptr<const Constraint> constraint;  // null: none of the request's own
};

class RequestTable {
 public:
  // Reads the records of the slice and checks each. usual: keys and ends of the task. Throws Error(kData) that lists
  // the first faults of all lines. Returns early, with an incomplete table, when poll says that the job should stop.
  // Local: every rank reads the whole file.
  // chat_tools: the model's chat template writes tools.
  RequestTable(const Dataset& dataset, const GenerateConfig& usual, const StopRules& ends, const Tokenizer& tokenizer,
               std::int64_t vocab_size, bool chat_tools, const StopPoll& poll);

  std::uint64_t size() const { return kinds_of_records_.size(); }
  // index: of the record within the slice.
  std::uint32_t kind_index(std::uint64_t index) const { return kinds_of_records_.at(index); }
  const RequestKind& kind(std::uint64_t index) const { return *kinds_[kind_index(index)]; }
  std::uint64_t num_texts() const { return num_texts_; }
  bool has_chats() const { return has_chats_; }
  // The request's own seed, on which its draws alone depend; nullopt: the experiment's, with the record's place.
  std::optional<std::uint64_t> seed(std::uint64_t index) const { return seeds_.at(index); }
  std::uint64_t first_source_index() const { return first_; }

 private:
  std::uint64_t first_ = 0;  // source index of record 0
  std::vector<std::unique_ptr<RequestKind>> kinds_;
  std::vector<std::uint32_t> kinds_of_records_;
  std::vector<std::optional<std::uint64_t>> seeds_;
  std::uint64_t num_texts_ = 0;
  bool has_chats_ = false;
};

}  // namespace magister
