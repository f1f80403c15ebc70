// See classifier_logits.h.
#include "magister/tasks/score/classifier_logits.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/device/upload.h"
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
  const PackedBatch batch = shares ? pack_sharing(sequences, rows) : pack_sequences(sequences);
  const at::Tensor hidden_TD = model.forward(batch, should_stop);
  if (!hidden_TD.defined()) return {};
  for (std::size_t i = 0; i < sequences.size(); ++i)
    rows[i] += batch.cu_seqlens[i] - batch.past(static_cast<std::int64_t>(i));
  const at::Tensor index = upload(at::tensor(rows, at::kLong), hidden_TD.device());
  return model.logits(hidden_TD.index_select(0, index)).to(at::kFloat).cpu();
}

}  // namespace magister
