// RecordAnswers: finds the texts of a generate task for the records of a later task. If both tasks read the same data,
// a record finds its texts by its place. Otherwise it finds them by its key, and both data sets need keys.
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

// Checks what RecordAnswers::check() will check, before `writer`, a task of this experiment, has written its texts, as
// far as limits and slices of the same files allow. place: file:line:column and the key that names the writer. Throws
// Error(kConfig). Collective over context.world.
void check_answered_records(const RunContext& context, const std::string& place, const Task& writer,
                            const DatasetConfig& config, const Dataset& dataset);

class RecordAnswers {
 public:
  // Throws Error(kData) if the file is of other data and one of the two data sets has no keys, or if the file has a key
  // twice. If it matches by key, it keeps 16 bytes per record. Local.
  RecordAnswers(const std::string& path, const DatasetConfig& config, const Dataset& dataset);

  // Checks that every record of the slice has texts, that every text belongs to a record of the data set, and that no
  // two records share texts. Throws Error(kData) naming the first fault of each kind. If records match by key, rank 0
  // reads the data set. Collective over world.
  void check(const Communicator& world, const Dataset& dataset) const;

  // The texts of a record, at least one. Throws Error(kData) with the record's place.
  std::vector<std::string> of(const Record& record) const;
  std::uint64_t texts_a_record() const { return texts_.texts_a_record(); }
  // The tokens of these texts as the model wrote them, and the identity of their tokenizer.
  std::vector<std::vector<TokenId>> tokens_of(const Record& record) const;
  TokenizerIdentity tokenizer() const { return texts_.tokenizer(); }
  // Number of tokens of the record's i-th text.
  std::uint64_t num_tokens(const Record& record, std::uint64_t i) const;
  // See GeneratedTexts.
  bool guided() const { return texts_.guided(); }
  double guide_kl(const Record& record, std::uint64_t i) const;
  bool has_flops() const { return texts_.has_flops(); }
  double flops(const Record& record, std::uint64_t i) const;
  // Mean log-probability of the record's i-th text by the model that wrote it, nats.
  double mean_logprob(const Record& record, std::uint64_t i) const;

 private:
  // The record's number among the records of the file.
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
