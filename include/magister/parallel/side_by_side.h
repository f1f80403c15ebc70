// Threads that exist during one call: one per shard of a rank.
#pragma once

#include <cstddef>
#include <functional>

namespace magister {

// Runs body(0) on this thread and body(1) .. body(count - 1) on threads of their own, until all have returned. Then
// throws the most useful error: the first one that is not ShardAbandoned, otherwise the first. If a thread cannot be
// started, no body runs and the exception of std::thread is thrown.
void run_side_by_side(std::size_t count, const std::function<void(std::size_t index)>& body);

}  // namespace magister
