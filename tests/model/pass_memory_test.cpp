// All shards of a group compute a pass or none, whichever shard lacks memory. A question covers, byte for byte, all
// memory that the pass then uses; sizes that were agreed on are not asked about again.
#include "magister/model/pass_memory.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "magister/model/partition.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace pass_memory_test {

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

std::uint64_t bytes_of(const ModelConfig& config, int shard, int shards, const GpuPassSize& size, bool codes = false) {
  std::uint64_t sum = 0;
  for (const auto& part :
       gpu_pass_parts(config, partition_for(config, shard, shards), shards, size, codes, at::kBFloat16))
    sum += part.second;
  return sum;
}

// Runs a pass of each size on every shard; shard `poor` has no memory at its `nth` question. room: free bytes of a
// shard's device; none given: unlimited.
std::vector<Outcome> run(int shards, const std::vector<PassMemory::Size>& sizes, int poor, int nth,
                         const std::function<std::uint64_t(int shard)>& room = {}) {
  auto groups = make_thread_process_groups(shards);
  std::vector<Outcome> outcomes(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    threads.emplace_back([&, s] {
      ThreadPool pool(1);
      Transformer model(small_config(), *groups[s], pool, at::kBFloat16, {}, gpu::Queue{});
      Outcome& outcome = outcomes[s];
      std::function<bool(std::uint64_t)> has_room;
      if (room) has_room = [&, s](std::uint64_t bytes) { return bytes <= room(static_cast<int>(s)); };
      PassMemory memory(model, [&] { return ++outcome.asked == nth && static_cast<int>(s) == poor; }, has_room);
      for (const PassMemory::Size& size : sizes)
        outcome.problems.push_back(memory.run(size, [&] { ++outcome.passes; }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(PassMemory, AllShardsComputeAPassOrNone) {
  for (const int poor : {0, 1}) {
    for (const Outcome& outcome : run(2, {{100, 0, 8, 0}}, poor, 1)) {
      EXPECT_EQ(outcome.problems, std::vector<std::string>{"a shard of the group has none"});
      EXPECT_EQ(outcome.passes, 0);
    }
  }
}

TEST(PassMemory, WhatThereWasMemoryForIsNotAskedAboutAgain) {
  // The third and fourth fit into the first two, the fifth into the reserve; then come a longer sequence, and more rows
  // of each kind.
  const std::vector<PassMemory::Size> sizes = {{100, 7, 8, 0}, {200, 5, 8, 0}, {200, 7, 8, 0}, {1, 7, 8, 0},
                                               {100, 9, 8, 0}, {1, 513, 1, 0}, {1, 1, 9, 0},   {1, 1, 1, 3}};
  for (const Outcome& outcome : run(2, sizes, -1, 0)) {
    EXPECT_EQ(outcome.problems, std::vector<std::string>(sizes.size()));
    EXPECT_EQ(outcome.passes, 8);
    EXPECT_EQ(outcome.asked, 5);
  }
}

// Each question is a meeting of the group for which the host waits for the device: not before every token.
TEST(PassMemory, TextsGrowForHundredsOfPassesBetweenTwoQuestions) {
  std::vector<PassMemory::Size> sizes;
  for (std::int64_t tokens = 1; tokens <= 1600; ++tokens) sizes.push_back({8, tokens, 0, 8});
  for (const Outcome& outcome : run(2, sizes, -1, 0)) {
    EXPECT_EQ(outcome.passes, 1600);
    EXPECT_EQ(outcome.asked, 4);
  }
}

// Memory for many tokens and memory for long sequences do not imply memory for both at once. If there is no memory for
// the reserve, a pass that fits by itself is still computed.
TEST(PassMemory, SizesAreAskedAboutTogether) {
  const PassMemory::Size many{4096, 512, 0, 0}, longer{1, 40'960, 0, 0}, both{4096, 40'960, 0, 0};
  const auto room = [&](int shard) {
    const auto of = [&](const PassMemory::Size& size) { return bytes_of(small_config(), shard, 2, size); };
    EXPECT_GT(of(both), std::max(of(many), of(longer)));
    return std::max(of(many), of(longer));
  };
  const std::string none = "a shard of the group has none";
  for (const Outcome& outcome : run(2, {many, longer, longer, both, many}, -1, 0, room)) {
    EXPECT_EQ(outcome.problems, (std::vector<std::string>{"", "", "", none, ""}));
    EXPECT_EQ(outcome.passes, 4);
  }
  const PassMemory::Size exact{1, 40'000, 0, 0};
  for (const Outcome& outcome : run(2, {exact, {1, 40'001, 0, 0}}, -1, 0,
                                    [&](int shard) { return bytes_of(small_config(), shard, 2, exact); })) {
    EXPECT_EQ(outcome.problems, (std::vector<std::string>{"", none}));
  }
}

// Memory in addition to activations: dequantised codes, the shard's logits, and whole rows of the vocabulary with the
// copies made on the way.
TEST(PassMemory, AsksForAllThatAPassTakes) {
  ModelConfig config = small_config();
  config.hidden_size = 64;
  config.head_dim = 32;
  config.intermediate_size = 128;
  const PassMemory::Size plain{4, 0, 0, 0}, whole{4, 0, 5, 3};
  for (const bool codes : {false, true}) {
    auto groups = make_thread_process_groups(2);
    std::vector<std::thread> threads;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      threads.emplace_back([&, s] {
        ThreadPool pool(1);
        const QuantScheme scheme = codes ? QuantScheme{QuantType::kInt8, 32} : QuantScheme{};
        Transformer model(config, *groups[s], pool, at::kBFloat16, scheme, gpu::Queue{});
        EXPECT_EQ(model.has_codes(), codes);
        std::uint64_t asked = 0;
        PassMemory memory(
            model, [] { return false; },
            [&](std::uint64_t bytes) {
              asked = bytes;
              return true;
            });
        memory.run(plain, [] {});
        const auto v = static_cast<std::uint64_t>(partition_for(config, static_cast<int>(s), 2).vocab.size());
        const std::uint64_t activations =
            gpu_activation_bytes(config, partition_for(config, static_cast<int>(s), 2), 4, 0, at::kBFloat16);
        EXPECT_EQ(asked, activations + (codes ? 2u * 64 * 64 * 2 : 0u)) << "gate and up: 2 x 64 columns of 64 inputs";
        memory.run(whole, [] {});
        EXPECT_EQ(asked, bytes_of(config, static_cast<int>(s), 2, whole, codes));
        EXPECT_EQ(asked - activations - (codes ? 2u * 64 * 64 * 2 : 0u), 4 * (5 * v + 3 * (3 * 10 + 2 * (v + 1))));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(PassMemory, OneShardFindsOut) {
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  Transformer model(small_config(), *group, pool, at::kBFloat16, {}, gpu::Queue{});
  PassMemory memory(model, [] { return false; });
  EXPECT_NE(
      memory.run({5, 0, 0, 0}, [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "none of 5 GB"); }).find("none of 5 GB"),
      std::string::npos);
  EXPECT_EQ(memory.run({5, 0, 0, 0}, [] {}), "");
  EXPECT_THROW(memory.run({5, 0, 0, 0}, [] { throw std::runtime_error("another fault"); }), std::runtime_error);
}

}  // namespace pass_memory_test
}  // namespace magister
