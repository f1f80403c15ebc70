// One packed batch per pass; logits are computed only for rows that are read.
#include "engine/model_runner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/device/upload.h"
#include "magister/model/partition.h"

namespace magister {

std::vector<std::int64_t> logit_widths(const ModelConfig& config, int tp_size) {
  std::vector<std::int64_t> widths;
  widths.reserve(static_cast<std::size_t>(tp_size));
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
  parts.reserve(widths.size());
  for (std::size_t shard = 0; shard < widths.size(); ++shard)
    parts.push_back(all_NRw[static_cast<std::int64_t>(shard)].narrow(1, 0, widths[shard]));
  return at::cat(parts, 1);
}

ModelRunner::ModelRunner(Transformer& model, std::int64_t num_pages, std::int64_t num_texts)
    : model_(model),
      memory_(model, [] { return fail_point("generate.pass.memory"); }),
      cache_(model.make_cache(num_pages, num_texts)),
      logit_widths_(logit_widths(model.config(), model.group().tp_size())) {}

namespace {

std::int64_t tokens_of(const std::vector<ModelRunner::Piece>& pieces) {
  std::int64_t tokens = 0;
  for (const ModelRunner::Piece& piece : pieces) tokens += piece.count;
  return tokens;
}

// Splits between two sequences, or inside the only one. The second half may read pages that the first one fills, never
// the other way round.
std::pair<std::vector<ModelRunner::Piece>, std::vector<ModelRunner::Piece>> halves_of(
    const std::vector<ModelRunner::Piece>& pieces) {
  if (pieces.size() == 1) {
    ModelRunner::Piece first = pieces.front(), second = first;
    first.count /= 2;
    second.first += first.count;
    second.count -= first.count;
    return {{first}, {second}};
  }
  const std::int64_t half = tokens_of(pieces) / 2;
  std::size_t border = 1;
  for (std::int64_t tokens = pieces[0].count; border + 1 < pieces.size() && tokens + pieces[border].count <= half;)
    tokens += pieces[border++].count;
  const auto middle = pieces.begin() + static_cast<std::ptrdiff_t>(border);
  return {{pieces.begin(), middle}, {middle, pieces.end()}};
}

}  // namespace

ModelRunner::Rows ModelRunner::run(const Scheduler::Pass& pass) {
  cache_.copy_pages(pass.copy_from, pass.copy_to);
  if (pass.computed.empty()) return {};
  std::vector<Piece> pieces;
  pieces.reserve(pass.computed.size());
  for (const Sequence* sequence : pass.computed) pieces.push_back({sequence, sequence->computed, sequence->scheduled});
  computed_tokens_ += static_cast<std::uint64_t>(tokens_of(pieces));
  Parts parts;
  compute(pieces, parts);
  Rows rows{{}, std::move(parts.wanted)};
  if (!parts.logits.empty())
    rows.logits_RV = parts.logits.size() == 1 ? parts.logits.front() : at::cat(parts.logits, 0);
  return rows;
}

PassMemory::Size ModelRunner::size_of(const std::vector<Piece>& pieces) const {
  PassMemory::Size size{tokens_of(pieces), 0, 0, 0};
  for (const auto& [sequence, first, count] : pieces) {
    size.sequence_tokens = std::max(size.sequence_tokens, first + count);
    if (first + count == sequence->num_tokens()) ++size.sampled_rows;
  }
  return size;
}

void ModelRunner::compute(const std::vector<Piece>& pieces, Parts& parts) {
  const std::int64_t tokens = tokens_of(pieces);
  if (tokens <= most_tokens_) {
    const std::string problem = memory_.run(size_of(pieces), [&] { compute_at_once(pieces, parts); });
    if (problem.empty()) return;
    MAGISTER_CHECK(tokens > 1, ExitCode::kConfig,
                   "no memory on the GPU for a pass of {} tokens: {} (one token is the least); lower token_budget or "
                   "max_sequences, use larger groups or a quantization",
                   tokens, problem);
    most_tokens_ = tokens / 2;
    if (model_.group().tp_rank() == 0)
      log_warning("no memory on the GPU for a pass of {} tokens; passes of at most {} from here on", tokens,
                  most_tokens_);
  }
  const auto [first, second] = halves_of(pieces);
  compute(first, parts);
  compute(second, parts);
}

void ModelRunner::compute_at_once(const std::vector<Piece>& pieces, Parts& parts) {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::int64_t> past, rows;
  std::vector<BlockTable> slots;
  std::vector<std::uint8_t> is_decode;
  std::vector<const Sequence*> ended;
  std::int64_t row = 0;
  for (const auto& [sequence, first, count] : pieces) {
    const auto begin = sequence->tokens.begin() + first;
    tokens.emplace_back(begin, begin + count);
    past.push_back(first);
    slots.push_back({sequence->pages.data(), 0, sequence->place});
    is_decode.push_back(first >= sequence->num_prompt_tokens());
    row += count;
    if (first + count < sequence->num_tokens()) continue;
    rows.push_back(row - 1);
    ended.push_back(sequence);
  }
  PackedBatch batch = pack_sequences(tokens, std::move(past));
  batch.is_decode_S = std::move(is_decode);
  batch.read_rows = std::move(rows);
  const at::Tensor hidden_RD = model_.forward(batch, slots, cache_);
  if (!ended.empty()) read_rows(hidden_RD, ended, parts);
}

at::Tensor ModelRunner::run_ahead(const std::vector<Sequence*>& texts, const at::Tensor& ids_R) {
  const auto rows = static_cast<std::int64_t>(texts.size());
  PassMemory::Size size{rows, 0, 0, rows};
  std::vector<std::int64_t> past;
  std::vector<BlockTable> slots;
  for (const Sequence* text : texts) {
    size.sequence_tokens = std::max(size.sequence_tokens, text->computed + 1);
    past.push_back(text->computed);
    slots.push_back({text->pages.data(), 0, text->place});
  }
  PackedBatch batch = pack_sequences(std::vector<std::vector<TokenId>>(texts.size(), {0}), std::move(past));
  batch.is_decode_S.assign(texts.size(), 1);
  batch.drawn_ids_T = ids_R;
  at::Tensor logits_RV;
  const std::string missing = memory_.run(size, [&] {
    logits_RV = gather_logits(model_.logits(model_.forward(batch, slots, cache_)), logit_widths_, model_.group());
  });
  if (!missing.empty()) return {};
  computed_tokens_ += static_cast<std::uint64_t>(rows);
  return logits_RV;
}

// Whole rows are gathered; for other rows only a few numbers are.
void ModelRunner::read_rows(const at::Tensor& hidden_RD, const std::vector<const Sequence*>& sequences, Parts& parts) {
  const at::Tensor logits_Rv = model_.logits(hidden_RD);
  std::vector<std::int64_t> whole, some;
  std::vector<std::span<const TokenId>> wanted;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::span<const TokenId> ids = sequences[i]->request.wanted;
    (ids.empty() ? whole : some).push_back(static_cast<std::int64_t>(i));
    if (!ids.empty()) wanted.push_back(ids);
  }
  const auto rows_at = [&](const std::vector<std::int64_t>& places) {
    return places.size() == sequences.size()
               ? logits_Rv
               : logits_Rv.index_select(0, upload(at::tensor(places, at::kLong), logits_Rv.device()));
  };
  // Everything that may run out of memory comes before results are stored, because the pass is then computed again in
  // halves.
  at::Tensor gathered_RV;
  if (!whole.empty()) gathered_RV = gather_logits(rows_at(whole), logit_widths_, model_.group());
  if (!some.empty()) {
    for (WantedRow& row : read_wanted(rows_at(some).contiguous(), wanted, model_.lm_head(), model_.group()))
      parts.wanted.push_back(std::move(row));
  }
  if (gathered_RV.defined()) parts.logits.push_back(std::move(gathered_RV));
}

}  // namespace magister
