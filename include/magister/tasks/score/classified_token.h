// The token at which a head of labels reads a record: the last one that is not padding, as transformers'
// ForSequenceClassification finds it; the first one if all are padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ranges>

namespace magister {

// Returns the position of that token in ids, those of a record. pad_token_id below 0: there is none.
template <std::ranges::random_access_range Ids>
std::int64_t classified_token(const Ids& ids, std::int64_t pad_token_id) {
  auto place = static_cast<std::int64_t>(std::ranges::size(ids)) - 1;
  while (place > 0 && static_cast<std::int64_t>(ids[static_cast<std::size_t>(place)]) == pad_token_id) --place;
  return std::max<std::int64_t>(0, place);
}

}  // namespace magister
