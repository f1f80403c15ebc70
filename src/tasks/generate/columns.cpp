// Columns of running texts, and the bytes that one record writes into them.
#include "tasks/generate/columns.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"

namespace magister {
std::vector<ColumnSpec> running_columns(const GenerateShape& shape) {
  using namespace generate_column;
  const std::uint64_t n = shape.num_records, width = shape.texts * shape.slots;
  std::vector<ColumnSpec> columns =
      sample_columns(n, shape.num_tokens, shape.key_bytes, "rows of prompt i are offset[i] .. offset[i+1] of /tokens",
                     "the prompts' tokens");
  columns.insert(columns.end(), {kSlotId.spec(n, width), kSlotLogprob.spec(n, width), kLength.spec(n, shape.texts),
                                 kFinishReason.spec(n, shape.texts)});
  if (shape.top > 0) {
    columns.push_back(kSlotTopId.spec(n, width * shape.top));
    columns.push_back(kSlotTopLogprob.spec(n, width * shape.top));
  }
  if (shape.guided) columns.push_back(kSlotGuideKl.spec(n, width));
  return columns;
}

std::vector<ColumnBytes> running_rows(const std::vector<Generation>& texts, const GenerateShape& shape) {
  std::vector<TokenId> ids(shape.texts * shape.slots, 0);
  std::vector<float> logprobs(ids.size(), 0.0f);
  std::vector<std::uint32_t> lengths(shape.texts, 0);
  std::vector<std::uint8_t> reasons(shape.texts, 0);
  std::vector<TokenId> top_ids(ids.size() * shape.top, 0);
  std::vector<float> top_logprobs(top_ids.size(), 0.0f);
  std::vector<float> kl(shape.guided ? ids.size() : 0, 0.0f);  // 0 if the guide has a multiplier of 0
  MAGISTER_ASSERT(texts.size() <= shape.texts);                // a request may ask for fewer than others
  for (std::size_t i = 0; i < texts.size(); ++i) {
    MAGISTER_ASSERT(texts[i].tokens.size() <= shape.slots && texts[i].logprobs.size() == texts[i].tokens.size());
    std::copy(texts[i].tokens.begin(), texts[i].tokens.end(),
              ids.begin() + static_cast<std::ptrdiff_t>(i * shape.slots));
    std::copy(texts[i].logprobs.begin(), texts[i].logprobs.end(),
              logprobs.begin() + static_cast<std::ptrdiff_t>(i * shape.slots));
    const auto first_top = static_cast<std::ptrdiff_t>(i * shape.slots * shape.top);
    MAGISTER_ASSERT(texts[i].top_ids.size() == texts[i].tokens.size() * shape.top);
    std::copy(texts[i].top_ids.begin(), texts[i].top_ids.end(), top_ids.begin() + first_top);
    std::copy(texts[i].top_logprobs.begin(), texts[i].top_logprobs.end(), top_logprobs.begin() + first_top);
    MAGISTER_ASSERT(texts[i].guide_kl.empty() || (shape.guided && texts[i].guide_kl.size() == texts[i].tokens.size()));
    std::copy(texts[i].guide_kl.begin(), texts[i].guide_kl.end(),
              kl.begin() + static_cast<std::ptrdiff_t>(shape.guided ? i * shape.slots : 0));
    lengths[i] = static_cast<std::uint32_t>(texts[i].tokens.size());
    reasons[i] = static_cast<std::uint8_t>(texts[i].finish_reason);
  }
  using namespace generate_column;
  std::vector<ColumnBytes> rows = {samples_column(kSlotId, ids), samples_column(kSlotLogprob, logprobs),
                                   samples_column(kLength, lengths), samples_column(kFinishReason, reasons)};
  if (shape.top > 0) {
    rows.push_back(samples_column(kSlotTopId, top_ids));
    rows.push_back(samples_column(kSlotTopLogprob, top_logprobs));
  }
  if (shape.guided) rows.push_back(samples_column(kSlotGuideKl, kl));
  return rows;
}

}  // namespace magister
