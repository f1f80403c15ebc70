// The sum of all CPU groups: contributions are added element by element in shard order 0, 1, 2, ..., so the bits do not
// depend on how shards are distributed over threads and ranks. bf16 and f16 are added in fp32 and rounded once.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <vector>

namespace magister {

// out[i] = contributions[0][i] + contributions[1][i] + ... for count elements of `type` (f32, f64, bf16, f16, i32, i64;
// integers wrap). out may be one of the contributions. No alignment is needed. Throws Error(kInternal) for other types.
void add_in_shard_order(c10::ScalarType type, const std::vector<const std::byte*>& contributions, std::byte* out,
                        std::size_t count);

}  // namespace magister
