// Results of task rollout: the columns, and reading the file back for a task that trains on it. Legend: R records, C
// cuts per record, N continuations per cut, S token slots per text.
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
  bool unread = false;                       // true if the reward reports texts that it did not compare
};

// Result of the comparison of a continuation with its neighbour: continuations 2i and 2i + 1 of a cut are compared; if
// their number is odd, the last one is not.
enum class Preferred : std::uint8_t { kLost = 0, kWon = 1, kNotCompared = 2 };

struct Continuation {
  std::vector<TokenId> tokens;     // after the cut, including the token that ended the text
  std::uint8_t finish_reason = 0;  // 0: an end token or a stop text; 1: max_new_tokens
  float reward = 0;                // of the whole text: the roll-in up to the cut, then this
  Preferred preferred = Preferred::kNotCompared;
  Unread unread = Unread::kNone;
};

// All texts of one record.
struct Rollouts {
  std::vector<TokenId> roll_in;             // the whole text
  std::vector<std::uint32_t> cut;           // [C] tokens of the roll-in that are kept, at least one less than it has
  std::vector<Continuation> continuations;  // [C * N]
};

std::vector<ColumnSpec> rollout_columns(const RolloutShape& shape);
std::vector<ColumnBytes> rollout_rows(const Rollouts& rollouts, const RolloutShape& shape);

// A complete file. Thread-safe.
class RolloutsFile {
 public:
  // Throws Error(kInputOutput) if the file cannot be read, Error(kData) if it is not a complete file of rollouts.
  // Local.
  explicit RolloutsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const RolloutShape& shape() const { return shape_; }
  TokenizerIdentity tokenizer() const { return tokenizer_of(file_); }
  std::vector<TokenId> prompt(std::uint64_t record) const;
  // Throws Error(kData) naming the record for impossible lengths, cuts, rewards or preferences, and for rows that
  // differ from the committed ones.
  Rollouts rollouts(std::uint64_t record);

 private:
  ResultsReader file_;
  CheckedUnits units_;
  RolloutShape shape_;
};

// The rules that `check` applies.
extern const ResultsSchema kRolloutSchema;

}  // namespace magister
