// Columns of running texts, and the bytes that one record writes into them.
#include "tasks/generate/columns.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/run/unit_samples.h"

namespace magister {
namespace {

using Extent = ColumnSpec::Extent;

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<ColumnSpec> running_columns(const GenerateShape& shape) {
  const std::uint64_t n = shape.num_records, width = shape.texts * shape.slots;
  std::vector<ColumnSpec> columns =
      sample_columns(n, shape.num_tokens, shape.key_bytes, "rows of prompt i are offset[i] .. offset[i+1] of /tokens",
                     "the prompts' tokens");
  columns.insert(
      columns.end(),
      {
          {"/generate/slot_id", ColumnType::kI32, n, width, "tokens of the record's texts, each in its slots", "",
           Extent::kSamples},
          {"/generate/slot_logprob", ColumnType::kF32, n, width, "their log-probabilities", "nat", Extent::kSamples},
          {"/generate/length", ColumnType::kU32, n, shape.texts, "used slots of each text", "", Extent::kSamples},
          {"/generate/finish_reason", ColumnType::kU8, n, shape.texts,
           "0: an end token or a stop text; 1: max_new_tokens", "", Extent::kSamples},
      });
  if (shape.top > 0) {
    columns.push_back({"/generate/slot_top_id", ColumnType::kI32, n, width * shape.top,
                       "the most probable tokens of every slot", "", Extent::kSamples});
    columns.push_back({"/generate/slot_top_logprob", ColumnType::kF32, n, width * shape.top, "their log-probabilities",
                       "nat", Extent::kSamples});
  }
  if (shape.guided) {
    columns.push_back({"/generate/slot_guide_kl", ColumnType::kF32, n, width,
                       "KL(guided || reference) of every slot's row", "nat", Extent::kSamples});
  }
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
  MAGISTER_ASSERT(texts.size() == shape.texts);
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
  std::vector<ColumnBytes> rows = {{"/generate/slot_id", bytes_of(ids), true},
                                   {"/generate/slot_logprob", bytes_of(logprobs), true},
                                   {"/generate/length", bytes_of(lengths), true},
                                   {"/generate/finish_reason", bytes_of(reasons), true}};
  if (shape.top > 0) {
    rows.push_back({"/generate/slot_top_id", bytes_of(top_ids), true});
    rows.push_back({"/generate/slot_top_logprob", bytes_of(top_logprobs), true});
  }
  if (shape.guided) rows.push_back({"/generate/slot_guide_kl", bytes_of(kl), true});
  return rows;
}

}  // namespace magister
