// See memory_ladder.h.
#include "magister/train/memory_ladder.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <new>
#include <string_view>

#include "magister/core/error.h"
#include "magister/core/log.h"

namespace magister {

// libtorch's host allocator throws its general error.
bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         std::string_view(error.what()).find("DefaultCPUAllocator: ") != std::string_view::npos;
}

MemoryLadder::MemoryLadder(bool recompute, int num_threads)
    : rung_(recompute ? Rung::kRecompute : Rung::kAsAsked), has_threads_(num_threads > 1) {}

void MemoryLadder::run(std::int64_t num_tokens, const std::function<void(bool recompute)>& pass) {
  for (;;) {
    const Rung rung = [this] {
      const std::shared_lock lock(state_);
      return rung_;
    }();
    if (run_on(rung, pass)) return;
    descend(rung, num_tokens);
  }
}

// Returns false if there was no memory; what the pass had is free again.
bool MemoryLadder::run_on(Rung rung, const std::function<void(bool recompute)>& pass) {
  std::unique_lock alone(passes_, std::defer_lock);
  std::shared_lock shared(passes_, std::defer_lock);
  if (rung == Rung::kAlone) {
    alone.lock();
  } else {
    shared.lock();
  }
  try {
    pass(rung != Rung::kAsAsked);
    return true;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
  }
  return false;
}

void MemoryLadder::descend(Rung from, std::int64_t num_tokens) {
  const std::unique_lock lock(state_);
  if (rung_ != from) return;  // another thread was faster
  if (from == Rung::kAsAsked) {
    rung_ = Rung::kRecompute;
    log_warning(
        "no memory for a micro-batch of {} tokens; layers are computed again in the backward pass from here on "
        "(gradient_checkpointing: the same result, a third more time)",
        num_tokens);
    return;
  }
  MAGISTER_CHECK(from == Rung::kRecompute && has_threads_, ExitCode::kConfig,
                 "no memory for a micro-batch of {} tokens, alone and with layers that are computed again (sums over "
                 "its rows are not divided, because that would change the result); lower train.micro_batch or "
                 "train.max_length, or give the job more memory",
                 num_tokens);
  rung_ = Rung::kAlone;
  log_warning("no memory for a micro-batch of {} tokens while others run; one at a time from here on (the same result)",
              num_tokens);
}

}  // namespace magister
