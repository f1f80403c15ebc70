// What a pass that ran out of memory does instead, with the same bits: first it keeps the layers' inputs alone and computes the layers again in the
// backward pass (gradient checkpointing), then it runs alone instead of one a thread. A micro-batch itself is not divided: its sums - of
// norms, biases, an adapter's factors - run over all its rows. What was learnt about the memory holds for the passes that follow.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <shared_mutex>

namespace magister {

// std::bad_alloc, or what libtorch throws where it gets no memory. Local.
bool is_out_of_memory(const std::exception& error);

class MemoryLadder {
 public:
  // recompute: where it begins. num_threads: that run passes at once. Local.
  MemoryLadder(bool recompute, int num_threads);

  // Calls pass(recompute), again with less to keep where it runs out of memory. Throws Error(kConfig) where nothing is left to be given up.
  // num_tokens: for the message. Any thread. Local.
  void run(std::int64_t num_tokens, const std::function<void(bool recompute)>& pass);

 private:
  enum class Rung { kAsAsked, kRecompute, kAlone };
  bool run_on(Rung rung, const std::function<void(bool recompute)>& pass);
  void descend(Rung from, std::int64_t num_tokens);

  std::shared_mutex passes_;  // shared by passes that run beside each other
  std::shared_mutex state_;
  Rung rung_;
  bool has_threads_;
};

}  // namespace magister
