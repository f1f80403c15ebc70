// RowSampler: draws the next token of each sequence of a pass from its logits. Rows that no processor changes and of
// which nothing is kept are drawn on the device, so that only ids and log-probabilities are copied from a GPU; of
// guided rows only the candidates are copied. All other rows are drawn on the host, through the chain of processors.
// The way of a row never depends on the other rows.
// Legend: R rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/gpu_sampler.h"
#include "engine/sequence.h"
#include "magister/engine/logits_processor.h"
#include "magister/engine/sampler.h"
#include "magister/model/transformer.h"

namespace magister {

class RowSampler {
 public:
  // model is kept by reference. Throws Error(kConfig) if top_logprobs does not fit the vocabulary.
  RowSampler(const Transformer& model, const GeneratorLimits& limits);

  // From now on the rows of guided requests are read for a guide; from a GPU only `candidates` tokens per row are
  // copied. Tokens outside the vocabulary of the guide's model are excluded from all texts, guided or not, because a
  // text may be guided later.
  void read_guided_rows(std::int64_t candidates, std::int64_t guide_vocab_size) {
    reads_guided_rows_ = true;
    candidates_ = candidates;
    allowed_vocab_size_ = std::min(guide_vocab_size, model_.config().vocab_size);
  }

  // The known part of a sequence's row: its logits on the host, the token that the device drew, or a guide's
  // candidates.
  struct Row {
    std::span<float> logits_V;
    std::optional<SampledToken> drawn;
    std::optional<CandidateRow> candidates;
    bool is_finite() const;
  };
  struct Rows {
    std::vector<Row> rows;  // row i belongs to sequence i
    at::Tensor on_host;     // owns the logits on the host
  };
  Rows read(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV) const;

  // The same in two steps if the device draws all rows with one decoding, so that another pass is queued before the
  // host has the tokens. later: number of tokens of each sequence that are drawn but not appended yet.
  bool draws_all_on_device(const std::vector<Sequence*>& sequences, int later = 0) const;
  DrawnRows begin_drawing(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV, int later) const;
  // Waits for the device.
  Rows finish_drawing(const DrawnRows& drawn) const;

  // Draws the sequence's next token, appends it with the data that are kept of its row, and returns it. guided: empty,
  // or the offsets of its candidates. Throws Error(kData) if no token may come next.
  SampledToken sample(Sequence& sequence, const Row& row, std::span<const GuidedToken> guided = {}) const;

  // The row after bias, penalty and constraint, from which a guide takes its candidates and which is its reference.
  // Throws like sample().
  std::vector<float> processed(Sequence& sequence, std::span<const float> logits_V) const;

 private:
  // Tokens allowed by the constraint, the model's rules and the guide's vocabulary; empty: all are allowed. Valid until
  // the sequence's next call.
  std::span<const std::uint64_t> allowed(Sequence& sequence) const;
  static DecodingState state_of(const Sequence& sequence);
  SampledToken append(Sequence& sequence, const SampledToken& token) const;
  bool allows_all_rows() const { return allowed_vocab_size_ == model_.config().vocab_size; }
  bool draws_on_device(const Sequence& sequence, int later = 0) const;
  bool finds_candidates_on_device(const Sequence& sequence) const;
  struct Alike;  // the rows of a pass with one decoding
  void read_on_device(const Alike& alike, const at::Tensor& logits_RV, Rows& result) const;
  static DrawKey key_of(const Sequence& sequence, int later = 0);

  const Transformer& model_;
  std::int64_t top_logprobs_;
  bool reads_guided_rows_ = false;
  std::int64_t candidates_ = 0;
  std::int64_t allowed_vocab_size_;  // only tokens below it may come next
};

}  // namespace magister
