// See classifier_logits.h.
#include "magister/tasks/score/classifier_logits.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/model/rope.h"
#include "magister/model/shared_prefixes.h"
#include "magister/tasks/score/classified_token.h"

namespace magister {

std::int64_t classifier_token(const std::vector<TokenId>& ids, const ModelConfig& config) {
  return config.encoder ? 0 : static_cast<std::int64_t>(classified_token(ids, config.pad_token_id));
}

at::Tensor classifier_logits(Transformer& model, const std::vector<std::vector<TokenId>>& sequences,
                             bool share_prefixes, const std::function<bool()>& should_stop) {
  // Long texts have a rotary table that depends on their length, so they cannot share keys.
  const bool shares = share_prefixes && model.shares_prefixes() &&
                      std::none_of(sequences.begin(), sequences.end(), [&](const auto& sequence) {
                        return rope_needs_own_table(model.config(), static_cast<std::int64_t>(sequence.size()));
                      });
  std::vector<std::int64_t> rows;
  rows.reserve(sequences.size());
  for (const auto& sequence : sequences) rows.push_back(classifier_token(sequence, model.config()));
  PackedBatch batch = shares ? pack_sharing(sequences, rows) : pack_sequences(sequences);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    rows[i] += batch.cu_seqlens[i] - batch.past(static_cast<std::int64_t>(i));
  batch.read_rows = std::move(rows);
  const at::Tensor hidden_RD = model.forward(batch, should_stop);
  return hidden_RD.defined() ? model.logits(hidden_RD).to(at::kFloat).cpu() : at::Tensor();
}

}  // namespace magister
