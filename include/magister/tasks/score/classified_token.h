// The token that stands for a record where a head of labels reads it: the last that is not padding, as transformers' ForSequenceClassification
// looks for it (its first where all are).
#pragma once

#include <algorithm>
#include <cstdint>
#include <ranges>

namespace magister {

// ids: of one record, of any integer type; pad_token_id below 0: there is none. Returns its place.
template <std::ranges::random_access_range Ids>
std::int64_t classified_token(const Ids& ids, std::int64_t pad_token_id) {
  auto place = static_cast<std::int64_t>(std::ranges::size(ids)) - 1;
  while (place > 0 && static_cast<std::int64_t>(ids[static_cast<std::size_t>(place)]) == pad_token_id) --place;
  return std::max<std::int64_t>(0, place);
}

}  // namespace magister
