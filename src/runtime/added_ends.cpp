// Finds the added tokens by encoding a text with and without them; see added_ends.h.
#include "magister/runtime/added_ends.h"

#include <algorithm>

namespace magister {

AddedEnds added_ends(const Tokenizer& tokenizer) {
  EncodeOptions plain;
  plain.add_special_tokens = false;
  const std::vector<TokenId> text = tokenizer.encode("a", plain), whole = tokenizer.encode("a", EncodeOptions{});
  const auto found = std::search(whole.begin(), whole.end(), text.begin(), text.end());
  if (found == whole.end()) return {};
  return {{whole.begin(), found}, {found + static_cast<std::ptrdiff_t>(text.size()), whole.end()}};
}

}  // namespace magister
