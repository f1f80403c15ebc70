// One packed batch a pass; nothing is asked of the model for rows that nobody reads.
#include "engine/model_runner.h"

#include <ATen/ATen.h>

#include "magister/device/upload.h"

namespace magister {

at::Tensor gather_logits(const at::Tensor& part_Rv, ProcessGroup& group) {
  if (group.tp_size() == 1) return part_Rv;
  at::Tensor width = at::tensor({part_Rv.size(1)}, at::kLong).to(part_Rv.device());
  const at::Tensor widths = group.all_gather(width);
  const std::int64_t widest = widths.max().item<std::int64_t>(), rows = part_Rv.size(0);
  const at::Tensor all_NRw = group.all_gather(at::constant_pad_nd(part_Rv, {0, widest - part_Rv.size(1)}).contiguous())
                                 .view({group.tp_size(), rows, widest});
  std::vector<at::Tensor> parts;
  for (std::int64_t shard = 0; shard < group.tp_size(); ++shard) {
    parts.push_back(all_NRw[shard].narrow(1, 0, widths[shard].item<std::int64_t>()));
  }
  return at::cat(parts, 1).contiguous();
}

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
  return gather_logits(model_.logits(hidden_RD), model_.group());
}

}  // namespace magister
