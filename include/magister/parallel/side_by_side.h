// A few threads that live as long as one call: the shards of a rank.
#pragma once

#include <cstddef>
#include <functional>

namespace magister {

// body(0) on this thread, body(1) .. body(count - 1) on threads of their own, until all have returned. Then the error that says most is
// thrown: the first one that is no ShardAbandoned, else the first. Where a thread cannot be started no body runs; throws what
// std::thread throws.
void run_side_by_side(std::size_t count, const std::function<void(std::size_t index)>& body);

}  // namespace magister
