// RowSampler: from the logits of a pass to the next token of each of its sequences. Rows that nothing changes or keeps are drawn where
// they are, so that on a GPU only ids and log-probabilities leave it, and of guided rows the candidates; all others on the host, through the
// chain of processors.
// A row's way never depends on the other rows. Legend: R rows, V vocabulary.
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
  // model is kept by reference. Throws Error(kConfig) for a number of kept tokens that the vocabulary does not have.
  RowSampler(const Transformer& model, const GeneratorLimits& limits);

  // From now on rows of guided requests come to the host, for a guide reads them: from a GPU so many candidates. Tokens that the guide's
  // model has no row for come next in no text, guided or not, for a text may be guided further on.
  void read_guided_rows(std::int64_t candidates, std::int64_t guide_vocab_size) {
    reads_guided_rows_ = true;
    candidates_ = candidates;
    allowed_vocab_size_ = std::min(guide_vocab_size, model_.config().vocab_size);
  }

  // What is known of a sequence's row: its logits on the host, the token that the device drew from them, or a guide's candidates.
  struct Row {
    std::span<float> logits_V;
    std::optional<SampledToken> drawn;
    std::optional<CandidateRow> candidates;
    bool is_finite() const;
  };
  struct Rows {
    std::vector<Row> rows;  // row i is that of sequence i
    at::Tensor on_host;     // keeps the logits that came to the host
  };
  Rows read(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV) const;

  // The same in two steps where the device draws all of them with one decoding, so that another pass is queued before the host has the tokens. later: tokens that
  // are drawn of each sequence and not yet appended.
  bool draws_all_on_device(const std::vector<Sequence*>& sequences, int later = 0) const;
  DrawnRows begin_drawing(const std::vector<Sequence*>& sequences, const at::Tensor& logits_RV, int later) const;
  // Waits for the device.
  Rows finish_drawing(const DrawnRows& drawn) const;

  // The sequence's next token, appended with what is kept of its row. guided: empty, or of its candidates. Throws Error(kData) where no
  // token continues its constraint.
  SampledToken sample(Sequence& sequence, const Row& row, std::span<const GuidedToken> guided = {}) const;

  // The row as bias, penalty and constraint make it: what a guide reads, and its reference. Throws likewise.
  std::vector<float> processed(Sequence& sequence, std::span<const float> logits_V) const;

 private:
  // By the constraint, the model's rules and the guide's vocabulary; empty: all tokens are. Valid until the sequence's next call.
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
  std::int64_t allowed_vocab_size_;  // tokens below it may come next
};

}  // namespace magister
