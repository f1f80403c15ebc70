// The numbers that sizing and loading must agree on: faults.md number 20 was a group size that only loading knew of.
#include "magister/runtime/open_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "magister/core/memory_parts.h"
#include "magister/parallel/shared_memory.h"
#include "model/families/family.h"
#include "model/random_tensor_file.h"
#include "support/huge_pages.h"

namespace magister {
namespace open_model_test {

TEST(QuantScheme, AGroupOfTheExperimentIsKnownToBeGiven) {
  ModelSection section;
  section.quantization = "int8";
  EXPECT_FALSE(quant_scheme_of(section).group_given);
  EXPECT_EQ(quant_scheme_of(section).group, 32);
  section.quantization_group = 128;
  EXPECT_TRUE(quant_scheme_of(section).group_given);
  EXPECT_EQ(quant_scheme_of(section).group, 128);
}

// What loading makes is what sizing counts: a decoding pass for throughput widens codes, and only these.
TEST(OpenModel, CountsTheBufferOfCodesForThroughput) {
  OpenModel model;
  ModelConfig& config = model.description.config;
  config.family = "llama";
  config.vocab_size = 96;
  config.hidden_size = config.intermediate_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 16;
  config.max_position_embeddings = 4096;
  model.description.names = hf_tensor_names(config);
  const RandomTensorFile file(model.description);
  model.file = &file;
  model.dtype = model.plain_dtype = at::kBFloat16;
  model.gpu = gpu::Queue{};
  const auto has_buffer = [&] {
    const MemoryParts parts = model.device_memory(1, PassShape{.tokens = 300, .sequence_tokens = 700}, 40);
    return std::ranges::any_of(parts, [](const auto& part) { return part.first == "products of codes in decoding"; });
  };
  model.throughput_decoding = true;
  EXPECT_FALSE(has_buffer()) << "bf16 is not widened";
  ModelSection section;
  section.quantization = "int8";
  model.quantization = quant_scheme_of(section);
  EXPECT_TRUE(has_buffer());
  model.throughput_decoding = false;
  EXPECT_FALSE(has_buffer());
}

// A model on CPUs with positions, which are never shared.
struct OfCpus {
  OfCpus() {
    ModelConfig& config = model.description.config;
    config.family = "opt";
    config.learned_positions = true;
    config.vocab_size = 960;
    config.hidden_size = config.intermediate_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = config.num_key_value_heads = 4;
    config.head_dim = 16;
    config.max_position_embeddings = 4096;
    model.description.names = hf_tensor_names(config);
    file.emplace(model.description);
    model.file = &*file;
  }
  MemoryParts parts() const { return model.device_memory(1, PassShape{.tokens = 300}, 0); }

  OpenModel model;
  std::optional<RandomTensorFile> file;
};

// The copies that the ranks of this test can have; those near each other have one. Collective over world.
int possible_copies(const Communicator& world) {
  const Communicator near = ranks_near_memory(world);
  const bool counts = !ranks_share_huge_pages(near) || near.rank() == 0;
  return static_cast<int>(world.split_by_host().sum(std::uint64_t{counts ? 1u : 0u}));
}

TEST(OpenModel, CountsACopyForTheRanksThatShareIt) {
  const Communicator world = Communicator::world();
  const int ranks = world.size(), copies = possible_copies(world);
  OfCpus one;
  const MemoryParts alone = one.parts();
  one.model.expect_sharing(world, 1, ranks, false);
  const MemoryParts together = one.parts();
  const auto all = static_cast<std::uint64_t>(ranks);
  const std::uint64_t shared = host_copy_bytes(one.model.description.config, one.model.dtype),
                      given_up = (all - static_cast<std::uint64_t>(copies)) * shared;
  EXPECT_LE(sum_of(alone) * all - given_up, sum_of(together) * all);
  EXPECT_LT(sum_of(together) * all, sum_of(alone) * all - given_up + all) << "rounded up on each rank";
  EXPECT_EQ(together.size(), alone.size() + (copies < ranks ? 1 : 0));
  if (copies == ranks) return;
  EXPECT_EQ(together.front().first, "weights of its own");
  EXPECT_GE(together.front().second, 4096u * 64 * sizeof(float)) << "each rank has the positions";
  EXPECT_EQ(together[1].first, fmt::format("{}/{} of the shared weights", copies, ranks));
}

TEST(OpenModel, CountsACopyForEachNodeOfAPlannedHost) {
  const Communicator world = Communicator::world();
  OfCpus one;
  const bool works = ranks_share_huge_pages(world);
  if (world.size() > 1) {
    one.model.expect_sharing(world, 1, 12, true);
    EXPECT_EQ(one.model.shared.copies, works ? std::min(12, num_memory_nodes()) : 12);
  }
  one.model.expect_sharing(world, 1, 1, true);
  EXPECT_FALSE(one.model.shared.on());
  EXPECT_EQ(one.parts().front().first, "weights");
}

TEST(OpenModel, CountsACopyForEachRankWhereTheKernelRefuses) {
  const Communicator world = Communicator::world();
  std::thread([&] {
    if (world.min(std::uint64_t{refuse_huge_pages() ? 1u : 0u}) == 0) return;
    OfCpus one;
    for (const bool is_planned : {false, true}) {
      one.model.expect_sharing(world, 1, 4 * world.size(), is_planned);
      EXPECT_EQ(one.model.shared.copies, (is_planned ? 4 : 1) * world.size()) << "the shards of a rank have one";
    }
    one.model.share_weights(world, 1);
    EXPECT_EQ(one.model.kept.host_copy, nullptr);
    EXPECT_EQ(one.model.shared.copies, world.size());
  }).join();
}

TEST(OpenModel, CountsWholeModelsForWhatIsNeverShared) {
  const Communicator world = Communicator::world();
  const auto shares = [&](const OfCpus& of, int tp_size) {
    OpenModel model = of.model;
    model.expect_sharing(world, tp_size, 12, true);
    return model.shared.bytes > 0;
  };
  OfCpus one;
  EXPECT_TRUE(shares(one, 1));
  EXPECT_FALSE(shares(one, 2)) << "the shards of a model differ";
  EXPECT_FALSE(shares(one, 0)) << "groups of several sizes";
  ModelSection section;
  section.quantization = "int8";
  one.model.quantization = quant_scheme_of(section);
  EXPECT_FALSE(shares(one, 1)) << "codes";
  one.model.quantization = {};
  one.model.description.config.encoder = EncoderConfig{};
  EXPECT_FALSE(shares(one, 1)) << "encoders";
  one.model.description.config.encoder.reset();
  if (world.rank() == 0) one.model.gpu = gpu::Queue{};
  EXPECT_FALSE(shares(one, 1)) << "on a GPU, if only of one rank";
}

TEST(OpenModel, CountsWhatTheRanksReallyHave) {
  const Communicator world = Communicator::world();
  OfCpus one;
  one.model.expect_sharing(world, 1, world.size(), false);
  one.model.share_weights(world, 1);
  EXPECT_EQ(one.model.shared.copies, possible_copies(world));
  EXPECT_EQ(one.model.kept.host_copy != nullptr, ranks_share_huge_pages(ranks_near_memory(world)));
  const auto copies_left = [&](int num_ranks) {
    WeightStore store;
    store.keep_only({"teacher"});
    store.get("teacher", "a", [&] { return StoredWeights{std::make_shared<const int>(7), 4, -1, num_ranks}; });
    one.model.kept = {&store, "teacher"};
    one.model.share_weights(world, 1);
    one.model.kept = {};
    return one.model.shared.copies;
  };
  EXPECT_EQ(copies_left(1), world.size()) << "an earlier task left a copy on each rank";
  EXPECT_EQ(copies_left(world.size()), 1);
  EXPECT_EQ(copies_left(2), (world.size() + 1) / 2);
}

}  // namespace open_model_test
}  // namespace magister
