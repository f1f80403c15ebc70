// See classifier_logits.h.
#include "magister/run/classifier_logits.h"

#include <ATen/ATen.h>

#include "magister/device/upload.h"
#include "magister/run/classified_token.h"

namespace magister {

std::int64_t classifier_token(const std::vector<TokenId>& ids, const ModelConfig& config) {
  return config.encoder ? 0 : static_cast<std::int64_t>(classified_token(ids, config.pad_token_id));
}

at::Tensor classifier_logits(Transformer& model, const std::vector<std::vector<TokenId>>& sequences,
                             const std::function<bool()>& should_stop) {
  const PackedBatch batch = pack_sequences(sequences);
  const at::Tensor hidden_TD = model.forward(batch, should_stop);
  if (!hidden_TD.defined()) return {};
  std::vector<std::int64_t> rows;
  rows.reserve(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i)
    rows.push_back(batch.cu_seqlens[i] + classifier_token(sequences[i], model.config()));
  const at::Tensor index = upload(at::tensor(rows, at::kLong), hidden_TD.device());
  return model.logits(hidden_TD.index_select(0, index)).to(at::kFloat).cpu();
}

}  // namespace magister
