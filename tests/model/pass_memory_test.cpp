// Who computes a pass: all shards of a group or none, whichever of them has no memory; and sizes that were agreed on are not asked about again.
#include "magister/model/pass_memory.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = 32;
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 10;
  config.intermediate_size = 16;
  return config;
}

struct Outcome {
  std::vector<std::string> problems;
  int passes = 0, asked = 0;
};

// A pass of each size on every shard, of which `poor` has no memory when it is asked for the `nth` time.
std::vector<Outcome> run(int shards, const std::vector<PassMemory::Size>& sizes, int poor, int nth) {
  auto groups = make_thread_process_groups(shards);
  std::vector<Outcome> outcomes(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    threads.emplace_back([&, s] {
      ThreadPool pool(1);
      Transformer model(small_config(), *groups[s], pool, at::kBFloat16, {}, gpu::Queue{});
      Outcome& outcome = outcomes[s];
      PassMemory memory(model, [&] { return ++outcome.asked == nth && static_cast<int>(s) == poor; });
      for (const PassMemory::Size& size : sizes)
        outcome.problems.push_back(memory.run(size, [&] { ++outcome.passes; }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(PassMemory, AllShardsComputeAPassOrNone) {
  for (const int poor : {0, 1}) {
    for (const Outcome& outcome : run(2, {{100, 0, 8}}, poor, 1)) {
      EXPECT_EQ(outcome.problems, std::vector<std::string>{"a shard of the group has none"});
      EXPECT_EQ(outcome.passes, 0);
    }
  }
}

TEST(PassMemory, WhatThereWasMemoryForIsNotAskedAboutAgain) {
  // The third and fourth fit into the first two; the fifth has a longer sequence, the last more rows.
  const std::vector<PassMemory::Size> sizes = {{100, 7, 8}, {200, 5, 8}, {200, 7, 8},
                                               {1, 7, 8},   {100, 9, 8}, {1, 1, 9}};
  for (const Outcome& outcome : run(2, sizes, -1, 0)) {
    EXPECT_EQ(outcome.problems, std::vector<std::string>(sizes.size()));
    EXPECT_EQ(outcome.passes, 6);
    EXPECT_EQ(outcome.asked, 4);
  }
}

TEST(PassMemory, OneShardFindsOut) {
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  Transformer model(small_config(), *group, pool, at::kBFloat16, {}, gpu::Queue{});
  PassMemory memory(model, [] { return false; });
  EXPECT_NE(
      memory.run({5, 0, 0}, [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "none of 5 GB"); }).find("none of 5 GB"),
      std::string::npos);
  EXPECT_EQ(memory.run({5, 0, 0}, [] {}), "");
  EXPECT_THROW(memory.run({5, 0, 0}, [] { throw std::runtime_error("another fault"); }), std::runtime_error);
}

}  // namespace
}  // namespace magister
