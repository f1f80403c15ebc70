// Sharing of common prefixes within one pass: tokens that neighbouring sequences have in common are computed once, as
// for several texts with one prompt. In models that allow it (Transformer::shares_prefixes) a row has the same bits as
// in a pass over whole sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/batch.h"

namespace magister {

// Packs sequences; neighbours may share a prefix. wanted_S: for each sequence the first row that the caller reads. Rows
// from there on are always kept: row r >= wanted_S[s] of sequence s is packed row cu_seqlens[s] + r - past(s).
// Neighbours that share have one prefix of at least kLeastShared tokens. Of several possible groupings the one that
// saves most rows is taken. The result depends on the sequences and their order only.
PackedBatch pack_sharing(const std::vector<std::vector<TokenId>>& sequences, const std::vector<std::int64_t>& wanted_S);

// One page of keys. With a shorter prefix, the remaining parts could need more pages than whole sequences.
inline constexpr std::int64_t kLeastShared = 48;

}  // namespace magister
