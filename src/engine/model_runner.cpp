// One packed batch a pass; nothing is asked of the model for rows that nobody reads.
#include "engine/model_runner.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/device/upload.h"
#include "magister/model/partition.h"

namespace magister {

std::vector<std::int64_t> logit_widths(const ModelConfig& config, int tp_size) {
  std::vector<std::int64_t> widths;
  for (int shard = 0; shard < tp_size; ++shard)
    widths.push_back(static_cast<std::int64_t>(partition_for(config, shard, tp_size).vocab.size()));
  return widths;
}

at::Tensor gather_logits(const at::Tensor& part_Rv, const std::vector<std::int64_t>& widths, ProcessGroup& group) {
  if (group.tp_size() == 1) return part_Rv;
  const std::int64_t widest = *std::max_element(widths.begin(), widths.end()), rows = part_Rv.size(0);
  const at::Tensor all_NRw = group.all_gather(at::constant_pad_nd(part_Rv, {0, widest - part_Rv.size(1)}).contiguous())
                                 .view({group.tp_size(), rows, widest});
  std::vector<at::Tensor> parts;
  for (std::size_t shard = 0; shard < widths.size(); ++shard)
    parts.push_back(all_NRw[static_cast<std::int64_t>(shard)].narrow(1, 0, widths[shard]));
  return at::cat(parts, 1);
}

ModelRunner::ModelRunner(Transformer& model, std::int64_t num_pages)
    : model_(model),
      cache_(model.make_cache(num_pages)),
      logit_widths_(logit_widths(model.config(), model.group().tp_size())) {}

at::Tensor ModelRunner::run(const Scheduler::Pass& pass) {
  cache_.copy_pages(pass.copy_from, pass.copy_to);
  if (pass.computed.empty()) return {};
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::int64_t> past, rows;
  std::vector<BlockTable> slots;
  std::vector<std::uint8_t> is_decode;
  std::int64_t row = 0;
  for (const Sequence* sequence : pass.computed) {
    const auto begin = sequence->tokens.begin() + sequence->computed;
    tokens.emplace_back(begin, begin + sequence->scheduled);
    past.push_back(sequence->computed);
    slots.push_back({sequence->pages.data(), 0});
    is_decode.push_back(sequence->computed >= sequence->num_prompt_tokens());
    row += sequence->scheduled;
    if (sequence->computed + sequence->scheduled == sequence->num_tokens()) rows.push_back(row - 1);
  }
  computed_tokens_ += static_cast<std::uint64_t>(row);
  PackedBatch batch = pack_sequences(tokens, std::move(past));
  batch.is_decode_S = std::move(is_decode);
  const at::Tensor hidden_TD = model_.forward(batch, slots, cache_);
  if (rows.empty()) return {};
  const at::Tensor hidden_RD = hidden_TD.index_select(0, upload(at::tensor(rows, at::kLong), hidden_TD.device()));
  return gather_logits(model_.logits(hidden_RD), logit_widths_, model_.group());
}

}  // namespace magister
