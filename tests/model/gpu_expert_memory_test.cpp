// The memory of passes with experts against the plan: counted byte by byte on the host, whose memory is not rounded.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <thread>

#include "magister/parallel/process_group.h"
#include "model/gpu/gpu_backend.h"
#include "support/counted_bytes.h"

namespace magister {
namespace gpu_expert_memory_test {

// A shared expert, which every token has, makes one expert's rows as many as the plan counts.
ModelConfig small_config(bool beside) {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 96;
  config.hidden_size = 96;
  config.intermediate_size = 96;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 1024;
  config.num_experts = 4;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 96;
  config.num_shared_experts = 1;
  if (beside) {
    config.dense_beside_experts = true;
    config.norm_placement = NormPlacement::kBoth;
  }
  return config;
}

// Bytes of all shards that a pass of so many sequences of two tokens has at most, each shard at its own time. From 512
// tokens on, products on the host have one size of tiles.
double most_bytes(const ModelConfig& config, int shards, std::size_t sequences, at::ScalarType factors) {
  const PackedBatch batch = pack_sequences(std::vector<std::vector<TokenId>>(sequences, {1, 2}));
  auto groups = make_thread_process_groups(shards);
  std::vector<double> most(static_cast<std::size_t>(shards));
  std::vector<std::thread> threads;
  std::unique_ptr<CountedBytes> counted;
  for (auto& group : groups) {
    threads.emplace_back([&] {
      gpu::GpuBackend model(gpu::random_gpu_weights(config, *group, factors, {}, gpu::Queue{}), *group, gpu::Queue{});
      model.forward(batch, {});  // tables are made once
      group->barrier();
      if (group->tp_rank() == 0) counted = std::make_unique<CountedBytes>();
      group->barrier();
      const at::Tensor hidden_TD = model.forward(batch, {});
      group->barrier();
      most[static_cast<std::size_t>(group->tp_rank())] = static_cast<double>(counted->most_of_this_thread());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::accumulate(most.begin(), most.end(), 0.0);
}

void expect_within_plan(at::ScalarType factors, const std::vector<bool>& besides, const std::vector<int>& all_shards) {
  for (const bool beside : besides) {
    for (const int shards : all_shards) {
      const ModelConfig config = small_config(beside);
      const auto planned = [&](std::int64_t tokens) {
        double bytes = 0;
        for (int shard = 0; shard < shards; ++shard)
          bytes += static_cast<double>(
              gpu_activation_bytes(config, partition_for(config, shard, shards), tokens, 0, factors));
        return bytes;
      };
      const double used = most_bytes(config, shards, 768, factors) - most_bytes(config, shards, 256, factors),
                   plan = planned(1536) - planned(512);
      std::printf("%s, %s%d shards: of a token's plan %.2f are used\n", c10::toString(factors),
                  beside ? "an MLP beside, " : "", shards, used / plan);
      EXPECT_LE(used, plan);
      EXPECT_GE(used, 0.5 * plan) << "the plan asks for far more than is used";
    }
  }
}

TEST(GpuExpertMemory, APassTakesNoMoreThanItsPlan) { expect_within_plan(at::kBFloat16, {false, true}, {1, 2}); }
TEST(GpuExpertMemory, APassInF32TakesNoMoreThanItsPlan) { expect_within_plan(at::kFloat, {false}, {1}); }

}  // namespace gpu_expert_memory_test
}  // namespace magister
