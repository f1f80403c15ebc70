// Fallbacks for a pass that runs out of memory, with the same bits: first it keeps only the layers' inputs and computes
// the layers again in the backward pass (gradient checkpointing), then it runs alone instead of one per thread. A
// micro-batch itself is not divided, because its sums (of norms, biases, an adapter's factors) run over all its rows. A
// fallback stays in force for the passes that follow.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <shared_mutex>

namespace magister {

// Reports whether the error is std::bad_alloc or one that libtorch throws if it gets no memory. Local.
bool is_out_of_memory(const std::exception& error);

class MemoryLadder {
 public:
  // recompute: whether to start with it. num_threads: passes that run at once. Local.
  MemoryLadder(bool recompute, int num_threads);

  // Calls pass(recompute), and again with less to keep if it runs out of memory. Throws Error(kConfig) if nothing is
  // left to give up.
  // num_tokens: for the message. Any thread. Local.
  void run(std::int64_t num_tokens, const std::function<void(bool recompute)>& pass);

 private:
  enum class Rung { kAsAsked, kRecompute, kAlone };
  bool run_on(Rung rung, const std::function<void(bool recompute)>& pass);
  void descend(Rung from, std::int64_t num_tokens);

  std::shared_mutex passes_;  // shared by concurrent passes
  std::shared_mutex state_;
  Rung rung_;
  bool has_threads_;
};

}  // namespace magister
