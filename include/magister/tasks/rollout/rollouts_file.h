// Results of task rollout: columns, and the file read back by whoever learns from it. Legend: R records, C cuts a record, N continuations a
// cut, S tokens that a text may have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/checked_units.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/results_file.h"
#include "magister/io/results/schema.h"
#include "magister/io/results/tokenizer_identity.h"
#include "magister/run/unit_writer.h"
#include "magister/text/unread.h"

namespace magister {

struct RolloutShape {
  std::uint64_t num_records = 0, num_tokens = 0, key_bytes = 1;
  std::uint64_t cuts = 1, n = 1, slots = 1;  // C, N, S
  bool unread = false;                       // whether the reward tells texts that it did not compare
};

// What a continuation was in the comparison with its neighbour: continuations 2i and 2i + 1 of a cut are compared, the last of an odd number is not.
enum class Preferred : std::uint8_t { kLost = 0, kWon = 1, kNotCompared = 2 };

struct Continuation {
  std::vector<TokenId> tokens;     // behind the cut; what ended the text included
  std::uint8_t finish_reason = 0;  // 0: an end token or a stop text; 1: max_new_tokens
  float reward = 0;                // of the whole text: roll-in up to the cut, and this
  Preferred preferred = Preferred::kNotCompared;
  Unread unread = Unread::kNone;
};

// One record.
struct Rollouts {
  std::vector<TokenId> roll_in;             // whole
  std::vector<std::uint32_t> cut;           // [C] tokens of the roll-in that stay
  std::vector<Continuation> continuations;  // [C * N]
};

std::vector<ColumnSpec> rollout_columns(const RolloutShape& shape);
std::vector<ColumnBytes> rollout_rows(const Rollouts& rollouts, const RolloutShape& shape);

// A complete file. Any thread may read.
class RolloutsFile {
 public:
  // Throws Error(kInputOutput) for what is no file, Error(kData) for what is no complete file of rollouts. Local.
  explicit RolloutsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const RolloutShape& shape() const { return shape_; }
  TokenizerIdentity tokenizer() const { return tokenizer_of(file_); }
  std::vector<TokenId> prompt(std::uint64_t record) const;
  // Throws Error(kData) naming the record for lengths, cuts, rewards or preferences that cannot be, and for rows that are not what was written.
  Rollouts rollouts(std::uint64_t record);

 private:
  ResultsReader file_;
  CheckedUnits units_;
  RolloutShape shape_;
};

// What `check` demands.
extern const ResultsSchema kRolloutSchema;

}  // namespace magister
