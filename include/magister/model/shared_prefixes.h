// Sequences that begin alike in one pass: their common tokens are computed once, as the same texts behind one prompt want it. A row has the
// same bits as in a pass over whole sequences, for models that say so (Transformer::shares_prefixes).
#pragma once

#include <cstdint>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/batch.h"

namespace magister {

// Packs sequences of which neighbours may begin alike. wanted_S: of each the first row that the caller reads, which is never left out: row r of
// sequence s, for r >= wanted_S[s], is packed row cu_seqlens[s] + r - past(s). Neighbours share at least kLeastShared tokens or none, and one
// beginning: of several that lie in each other the one that saves most rows. Depends on the sequences and their order alone.
PackedBatch pack_sharing(const std::vector<std::vector<TokenId>>& sequences, const std::vector<std::int64_t>& wanted_S);

// A page of keys: then the pages of what is left never are more than those of whole sequences.
inline constexpr std::int64_t kLeastShared = 48;

}  // namespace magister
