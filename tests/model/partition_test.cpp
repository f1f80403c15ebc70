// Every division of many shapes: the parts cover the whole once, KV groups stay whole or are copied, and boundaries are
// aligned.
#include "magister/model/partition.h"

#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/model/layer_shape.h"
#include "magister/model/transformer.h"

namespace magister {
namespace partition_test {

ModelConfig shaped(std::int64_t heads, std::int64_t kv_heads, std::int64_t mlp, std::int64_t vocab) {
  ModelConfig config;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.intermediate_size = mlp;
  config.vocab_size = vocab;
  return config;
}

// Ranges are one after the other from 0 to total, none empty, sizes differ by at most `step`.
void expect_cover(const std::vector<IndexRange>& parts, std::int64_t total, std::uint64_t step) {
  std::uint64_t next = 0, least = UINT64_MAX, most = 0;
  for (const IndexRange& part : parts) {
    EXPECT_EQ(part.begin, next);
    EXPECT_LT(part.begin, part.end);
    next = part.end;
    least = std::min(least, part.size());
    most = std::max(most, part.size());
  }
  EXPECT_EQ(next, static_cast<std::uint64_t>(total));
  EXPECT_LT(most - least, 2 * step);  // the last step may be short by up to step - 1
}

std::uint64_t step_of(std::int64_t total, std::uint64_t count, std::uint64_t step) {
  while (step > 1 && (static_cast<std::uint64_t>(total) + step - 1) / step < count) step /= 2;
  return step;
}

void expect_good_division(const ModelConfig& config, int tp_size) {
  SCOPED_TRACE(testing::Message() << config.num_attention_heads << "/" << config.num_key_value_heads << " heads, mlp "
                                  << config.intermediate_size << ", vocab " << config.vocab_size << " over "
                                  << tp_size);
  const auto count = static_cast<std::uint64_t>(tp_size);
  const auto group = static_cast<std::uint64_t>(config.num_attention_heads / config.num_key_value_heads);
  std::vector<IndexRange> heads, kv_heads, mlp, vocab;
  for (int rank = 0; rank < tp_size; ++rank) {
    const Partition part = partition_for(config, rank, tp_size);
    heads.push_back(part.heads);
    kv_heads.push_back(part.kv_heads);
    mlp.push_back(part.mlp);
    vocab.push_back(part.vocab);
    // The KV heads are those of the query heads, no more and no fewer.
    EXPECT_EQ(part.kv_heads.begin, part.heads.begin / group);
    EXPECT_EQ(part.kv_heads.end, (part.heads.end - 1) / group + 1);
  }
  const bool whole_groups = tp_size <= config.num_key_value_heads;
  expect_cover(heads, config.num_attention_heads, whole_groups ? group : 1);
  if (whole_groups) {
    expect_cover(kv_heads, config.num_key_value_heads, 1);
    for (const IndexRange& part : heads) EXPECT_TRUE(part.begin % group == 0 && part.end % group == 0);
  }
  const std::uint64_t mlp_step = step_of(config.intermediate_size, count, 32);
  const std::uint64_t vocab_step = step_of(config.vocab_size, count, 64);
  expect_cover(mlp, config.intermediate_size, mlp_step);
  expect_cover(vocab, config.vocab_size, vocab_step);
  for (const IndexRange& part : mlp) EXPECT_EQ(part.begin % mlp_step, 0u);
  for (const IndexRange& part : vocab) EXPECT_EQ(part.begin % vocab_step, 0u);
}

TEST(Partition, EveryShapeIsCoveredOnceByWholeGroups) {
  int divisions = 0;
  for (std::int64_t kv_heads = 1; kv_heads <= 9; ++kv_heads) {
    for (std::int64_t group = 1; group <= 5; ++group) {
      for (const std::int64_t mlp : {37, 96, 1000, 1536}) {
        for (const std::int64_t vocab : {50, 257, 49152}) {
          const ModelConfig config = shaped(kv_heads * group, kv_heads, mlp, vocab);
          for (const int size : working_tp_sizes(config, 64)) {
            expect_good_division(config, size);
            ++divisions;
          }
        }
      }
    }
  }
  EXPECT_GT(divisions, 6000);
}

TEST(Partition, SmolLM2OverTwoAndThree) {
  const ModelConfig config = shaped(9, 3, 1536, 49152);
  EXPECT_EQ(partition_for(config, 0, 2).heads, (IndexRange{0, 6}));
  EXPECT_EQ(partition_for(config, 0, 2).kv_heads, (IndexRange{0, 2}));
  EXPECT_EQ(partition_for(config, 1, 2).heads, (IndexRange{6, 9}));
  EXPECT_EQ(partition_for(config, 1, 2).kv_heads, (IndexRange{2, 3}));
  EXPECT_EQ(partition_for(config, 2, 3).heads, (IndexRange{6, 9}));
  EXPECT_EQ(partition_for(config, 2, 3).mlp, (IndexRange{1024, 1536}));
  EXPECT_EQ(partition_for(config, 1, 2).vocab, (IndexRange{24576, 49152}));
}

TEST(Partition, FewerKvHeadsThanShardsAreCopied) {
  const ModelConfig config = shaped(8, 2, 128, 512);
  for (int rank = 0; rank < 4; ++rank) {
    const auto first = static_cast<std::uint64_t>(rank);
    EXPECT_EQ(partition_for(config, rank, 4).heads, (IndexRange{2 * first, 2 * first + 2}));
    EXPECT_EQ(partition_for(config, rank, 4).kv_heads, (IndexRange{first / 2, first / 2 + 1}));
  }
}

TEST(Partition, TooManyShardsAreRefusedWithTheSizesThatWork) {
  const ModelConfig config = shaped(9, 3, 1536, 49152);
  try {
    partition_for(config, 0, 10);
    FAIL() << "10 shards of 9 heads were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("1 to 9"), std::string::npos) << error.what();
  }
  EXPECT_EQ(working_tp_sizes(config, 64).size(), 9u);
  EXPECT_EQ(working_tp_sizes(config, 4), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_THROW(partition_for(config, 0, 0), Error);
}

// A norm over all heads of q and k: each KV head's squares are counted by one shard, though several may hold it.
TEST(Partition, NormsOverAllHeadsCountEachHeadOnce) {
  ModelConfig config = shaped(8, 2, 128, 512);
  config.qk_norm = config.qk_norm_of_all_heads = true;
  EXPECT_EQ(shape_of(config, partition_for(config, 0, 1), 0).all_heads, 0);
  for (const int size : {2, 3, 5, 8}) {
    std::int64_t counted = 0, heads = 0;
    for (int rank = 0; rank < size; ++rank) {
      const LayerShape shape = shape_of(config, partition_for(config, rank, size), 0);
      EXPECT_EQ(shape.all_heads, 8);
      EXPECT_EQ(shape.all_kv_heads, 2);
      heads += shape.heads;
      counted += shape.kv_heads - shape.first_counted_kv;
    }
    EXPECT_EQ(heads, 8);
    EXPECT_EQ(counted, 2) << size << " shards";
  }
}

// Two layers of each kind have keys of their own; the last two read those.
TEST(Partition, SharedKeysHaveNoPages) {
  ModelConfig config = shaped(4, 2, 64, 256);
  config.num_hidden_layers = 6;
  config.head_dim = 8;
  config.full_head_dim = 16;
  config.full_kv_heads = 1;
  config.sliding_window = 8;
  config.layer_is_sliding = {true, false, true, false, true, false};
  config.shared_kv_layers = 2;
  EXPECT_EQ(config.kv_layer(4), 2);
  EXPECT_EQ(config.kv_layer(5), 3);
  const Partition all = partition_for(config, 0, 1), second = partition_for(config, 1, 2);
  const std::uint64_t a_number = 2 * sizeof(float) * KvPages::kSlots;
  EXPECT_EQ(kv_page_bytes(config, all), a_number * (2 * 2 * 8 + 2 * 16));
  // A KV head of full attention is on both shards.
  EXPECT_EQ(kv_page_bytes(config, second), a_number * (2 * 8 + 2 * 16));
}

}  // namespace partition_test
}  // namespace magister
