// SamplePlan: all ranks tokenise the data set once, in bounded memory. Each rank takes a contiguous part of the records
// and writes lengths, ids, keys and source positions into unlinked temporary files (spools). When all lengths are
// known, the size of the results file is known, and the spools are copied into it. Memory does not grow with the number
// of records.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/unit_plan.h"
#include "magister/io/dataset/dataset.h"
#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"
#include "magister/run/spool.h"
#include "magister/runtime/added_ends.h"
#include "magister/runtime/sample_tokens.h"
#include "magister/runtime/stop.h"
#include "magister/text/tokenizer.h"

namespace magister {

class SamplePlan;

// A text that every record should have. If it is empty in all of them, `plan` and the run say so.
struct ExpectedText {
  std::string source;  // for the message: the field and its file
  std::string key;     // for the message: the key of the experiment that names them
  // Null: nothing is expected. Called on every rank for its own records, until one has a text.
  std::function<bool(const Record&)> is_empty{};
};

// Expects a text in a field of the data set. key: the key that names the field.
ExpectedText expect_field(const DatasetConfig& dataset, const std::string& field, std::string key,
                          std::function<bool(const Record&)> is_empty);

struct SampleRules {
  std::uint64_t max_length = 2048;
  std::uint64_t stride = 0;  // windows start every `stride` tokens; 0, and at most: the length of a window
  Overflow overflow = Overflow::kTruncate;
  std::uint64_t unit_tokens = 2048;
  std::int64_t vocab_size = 0;                           // of the model: a record with other ids is refused
  const Tokenizer* tokenizer = nullptr;                  // null: the data set has ids, not text
  std::uint64_t unit_samples = UnitPacker::kMaxSamples;  // at most this number of samples per unit
  std::uint64_t group_samples =
      1;  // consecutive samples that belong together; least_units limits units to multiples of it
  const char* length_key = "max_length";  // the key that holds max_length, for messages
  bool may_cut = true;                    // `overflow` is a key of this task
  std::uint64_t min_length = 0;           // a shorter record is refused
  // Makes the tokens of one or more samples from a record. Empty: the sample is the record's ids, or the tokenizer's
  // encoding of its text, with BOS if the model needs it. Called on every rank for its own records.
  std::function<std::vector<SampleTokens>(const Record&)> encode{};
  // Number of tokens at the end of every text that are kept when it is truncated: those that the tokenizer adds.
  std::uint64_t kept_tail = 0;
  // The tokens that the tokenizer adds to every text, and so to every window. Empty: windows are the tokens of the text
  // as they follow each other.
  AddedEnds window_ends{};
  bool marks_assistant = false;  // encode also gives the marks, which become /tokens/assistant
  bool cuts_begins = false;      // a truncated text loses its beginning instead of its end,
  std::uint32_t kept_head = 0;   // except this number of tokens that the tokenizer adds
  // Predicate: is the sample used? Empty: all are. item_samples consecutive ones are kept or dropped together.
  std::function<bool(std::span<const TokenId> ids, std::span<const std::uint8_t> assistant)> takes_part{};
  std::uint64_t item_samples = 1;
  ExpectedText expected_text{};
  // The name of a sample when `plan` prints the text of the first one: "prompt", "chat". Null: it prints none.
  const char* shown_as = nullptr;
  // About the least number of units: a small data set is divided into small units, so that several groups have work.
  std::uint64_t least_units = 16;
  // Throws Error(kData), the same on every rank, if no sample of the plan can be computed. Called before a file is
  // made, and in `plan`.
  std::function<void(const SamplePlan&)> check{};
};

// The totals of a plan: from SamplePlan, or on a restart from the attributes of the file that the plan made.
struct PlanNumbers {
  std::uint64_t num_samples = 0, num_tokens = 0, num_units = 0;
  std::uint64_t key_bytes = 1;       // width of /samples/key
  std::uint64_t longest_sample = 0;  // tokens
};

class SamplePlan {
 public:
  // Tokenises this rank's part of the data set. If any rank is asked to stop, all throw Error(kStopped). Collective
  // over world.
  static SamplePlan make(const Communicator& world, const Dataset& dataset, const SampleRules& rules,
                         const std::string& spool_directory, const StopSign& stop);
  // Computes only the totals, for `plan`: for every sample only its length goes to disk (4 bytes, in the system's
  // temporary folder). Collective over world.
  static SamplePlan measure(const Communicator& world, const Dataset& dataset, const SampleRules& rules,
                            const StopSign& stop);

  // Totals over the world, equal on every rank.
  std::uint64_t num_samples = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_units = 0;
  std::uint64_t num_records_cut = 0;  // records of which a sample or more was truncated or cut into windows
  // Turns of the assistant whose tokens cannot be marked, and the number of records with such turns.
  std::uint64_t num_turns_left_out = 0, num_records_with_such = 0;
  // Says that the expected text is empty in all records; no value if one of them has it.
  std::optional<std::string> empty_texts;
  std::uint64_t max_key_bytes = 1;
  std::uint64_t longest_sample = 0;
  std::uint64_t num_items = 0;  // groups of item_samples samples that are all used
  // Digest of the samples' lengths in order, independent of the number of ranks.
  std::uint64_t lengths_digest = 0;

  // Writes this rank's part of /samples/*, /tokens/id, /tokens/assistant (with marks) and /commit/unit_begin. Local.
  void write_fixed_columns(ResultsFile& file);

 private:
  SamplePlan(const Communicator& world, const SampleRules& rules, const std::string& spool_directory, bool keeps_rows);
  void read(const Communicator& world, const Dataset& dataset, const SampleRules& rules, const StopSign& stop);
  void tokenize(const Dataset& dataset, IndexRange records, const SampleRules& rules, const StopSign& stop);
  void add_samples(const Record& record, std::span<const TokenId> ids, std::span<const std::uint8_t> assistant,
                   const SampleRules& rules);
  void add_windows(const Record& record, std::span<const TokenId> ids, std::span<const std::uint8_t> assistant,
                   const SampleRules& rules);
  void add_sample(const Record& record, std::span<const TokenId> ids, std::span<const std::uint8_t> assistant);
  void count_item(bool takes_part);
  void write_rows(ResultsFile& file, const char* column, Spool& spool, std::uint64_t row_bytes) const;
  void write_samples(ResultsFile& file);
  void write_units(ResultsFile& file);
  // Calls visit(index in this part, length), in order.
  template <typename Visit>
  void for_each_length(const Visit& visit);
  void agree(const Communicator& world);

  bool keeps_rows_ = true;
  Spool ids_;        // TokenId after TokenId
  Spool assistant_;  // u8 after u8, if marks_assistant
  bool marks_assistant_ = false;
  Spool samples_;  // u64 source_index, u32 key bytes, key
  Spool lengths_;  // u32 after u32
  std::uint64_t own_samples_ = 0, own_tokens_ = 0, own_digest_ = 0, next_factor_ = 1;  // of this rank's part
  std::uint64_t first_sample_ = 0, first_token_ = 0;
  // Copied from the rules.
  std::uint64_t unit_tokens_ = 0, unit_samples_ = 0, group_samples_ = 1, item_samples_ = 1, least_units_ = 1;
  decltype(SampleRules::takes_part) takes_part_;
  bool all_empty_ = false;          // true as long as a text is expected and no record of this rank has it
  bool item_takes_part_ = true;     // true as long as all samples of the current item are used
  UnitPacker::State units_before_;  // state after the ranks before: number of units, content of the open one
  bool last_rank_ = false;
};

}  // namespace magister
