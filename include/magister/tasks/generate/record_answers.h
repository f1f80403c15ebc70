// RecordAnswers: the texts of a generate task, found for the records of a task that goes on from them. A record finds its texts by its key
// where both data sets have keys, and by its place where both tasks read the same data; any other match would be a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/run/run_context.h"
#include "magister/tasks/generate/generated_texts.h"

namespace magister {

// What RecordAnswers::check() is going to say of the texts of `writer`, a task of this experiment that may not have written them yet, as far as
// limits and slices of the same files tell. place: file:line:column and the key that names it. Throws Error(kConfig). Collective over context.world.
void check_answered_records(const RunContext& context, const std::string& place, const Task& writer,
                            const DatasetConfig& config, const Dataset& dataset);

class RecordAnswers {
 public:
  // Throws Error(kData) when the file is of other data and the two have no keys in common, or has a key twice. Local; by key it
  // keeps 16 bytes per record.
  RecordAnswers(const std::string& path, const DatasetConfig& config, const Dataset& dataset);

  // Every record of the slice has texts, every text belongs to a record of the data set, and none to two. Throws
  // Error(kData) naming the first of each kind. By key rank 0 reads the data set for that. Collective over world.
  void check(const Communicator& world, const Dataset& dataset) const;

  // The texts of a record, at least one. Throws Error(kData) with its place.
  std::vector<std::string> of(const Record& record) const;
  std::uint64_t texts_a_record() const { return texts_.texts_a_record(); }
  // Likewise the tokens that the model wrote, and whose tokens these are.
  std::vector<std::vector<TokenId>> tokens_of(const Record& record) const;
  TokenizerIdentity tokenizer() const { return texts_.tokenizer(); }
  // Tokens of the record's i-th text.
  std::uint64_t num_tokens(const Record& record, std::uint64_t i) const;
  // See GeneratedTexts.
  bool guided() const { return texts_.guided(); }
  double guide_kl(const Record& record, std::uint64_t i) const;
  bool has_flops() const { return texts_.has_flops(); }
  double flops(const Record& record, std::uint64_t i) const;
  // Mean log-probability of the record's i-th text under the model that wrote it.
  double mean_logprob(const Record& record, std::uint64_t i) const;

 private:
  // Number of the record among those of the file.
  std::optional<std::uint64_t> find(const Record& record) const;
  std::uint64_t require(const Record& record) const;
  std::optional<std::uint64_t> find_key(const std::string& key) const;
  void index_keys();
  std::string faults_by_key(const Dataset& dataset) const;

  struct KeyAt {
    std::uint64_t hash, record;
  };
  std::string path_;
  GeneratedTexts texts_;
  std::uint64_t num_records_ = 0, first_ = 0;  // first_: place of the file's first record in its data set
  bool by_key_ = false;
  std::vector<KeyAt> keys_;  // sorted by hash
};

}  // namespace magister
