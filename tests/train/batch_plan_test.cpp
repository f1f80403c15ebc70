// Steps and micro-batches from lengths: every sample once per epoch, in an order that depends only on seed and epoch;
// counts as in Hugging Face's Trainer.
#include "magister/train/batch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace magister {
namespace batch_plan_test {

std::vector<std::uint32_t> lengths(std::uint32_t count) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < count; ++i) all.push_back(i % 7 == 3 ? 0 : 5 + i * 37 % 60);
  return all;
}

Samples samples_of(BatchPlan& plan, std::uint64_t begin, std::uint64_t end) {
  Samples all;
  for (std::uint64_t step = begin; step < end; ++step) {
    for (const Samples& batch : plan.micro_batches(step)) all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(BatchPlan, EveryEpochHasEverySampleOnceInAnotherOrder) {
  for (const bool packing : {false, true}) {
    BatchOptions options;
    options.packing = packing;
    options.max_length = 100;
    options.epochs = 2;
    options.global_batch = 4;
    BatchPlan plan(lengths(50), options);
    const std::uint64_t all_steps = plan.num_steps();
    std::uint64_t first = 0;
    while (plan.epoch_of(first) == 0) ++first;
    Samples one = samples_of(plan, 0, first), two = samples_of(plan, first, all_steps);
    EXPECT_NE(one, two);
    BatchPlan again(lengths(50), options);
    EXPECT_EQ(samples_of(again, first, all_steps), two);  // whatever was asked before
    std::sort(one.begin(), one.end());
    std::sort(two.begin(), two.end());
    EXPECT_EQ(one, two);
    EXPECT_EQ(one.size(), 43u);  // not those without tokens
    EXPECT_EQ(std::unique(one.begin(), one.end()), one.end());
    options.seed = 1;
    BatchPlan other(lengths(50), options);
    EXPECT_NE(samples_of(other, 0, 5), samples_of(plan, 0, 5));
  }
}

TEST(BatchPlan, CountsStepsAsTheTrainerDoes) {
  BatchOptions options;
  options.global_batch = 8;
  EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(43, 9), options).num_steps(), 18u);  // 3 * ceil(43 / 8)
  options.epochs = 1.5;
  EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(43, 9), options).num_steps(), 9u);
  // As ceil(epochs * steps), not as 1.1 - 1 is in binary.
  options.global_batch = 1;
  for (const auto& [epochs, steps] : {std::pair{1.1, 11u}, {1.3, 13u}, {2.2, 22u}, {0.31, 4u}}) {
    options.epochs = epochs;
    EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(10, 9), options).num_steps(), steps) << epochs;
  }
  options.steps = 100;
  EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(43, 9), options).num_steps(), 100u);
  EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(3, 0), options).num_samples(), 0u);
}

TEST(BatchPlan, MicroBatchesHoldWholeSequences) {
  BatchOptions options;
  options.shuffle = false;
  options.global_batch = 6;
  options.micro_batch = 4;
  BatchPlan plan(std::vector<std::uint32_t>(8, 100), options);
  EXPECT_EQ(plan.micro_batches(0), (std::vector<Samples>{{0, 1, 2, 3}, {4, 5}}));
  EXPECT_EQ(plan.micro_batches(1), (std::vector<Samples>{{6, 7}}));
  options.micro_batch = 0;  // 600 tokens: 256 at most
  EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(8, 100), options).micro_batches(0),
            (std::vector<Samples>{{0, 1}, {2, 3}, {4, 5}}));
  options.packing = true;
  options.max_length = 250;
  options.global_batch = 2;
  EXPECT_EQ(BatchPlan(std::vector<std::uint32_t>(8, 100), options).micro_batches(0),
            (std::vector<Samples>{{0, 1}, {2, 3}}));
}

TEST(BatchPlan, StepsByTokens) {
  BatchOptions options;
  options.shuffle = false;
  options.epochs = 1;
  options.batch_tokens = 250;
  options.micro_batch = 2;
  BatchPlan plan({100, 100, 100, 0, 400, 20, 30, 200, 1}, options);
  ASSERT_EQ(plan.num_steps(), 5u);
  EXPECT_EQ(plan.micro_batches(0), (std::vector<Samples>{{0, 1}}));
  EXPECT_EQ(plan.micro_batches(1), (std::vector<Samples>{{2}}));
  EXPECT_EQ(plan.micro_batches(2), (std::vector<Samples>{{4}}));          // longer than a batch, and alone
  EXPECT_EQ(plan.micro_batches(3), (std::vector<Samples>{{5, 6}, {7}}));  // 250, and not one more
  EXPECT_EQ(plan.micro_batches(4), (std::vector<Samples>{{8}}));
  // In every order each sample once, no step above the limit unless it is one sample's.
  options.shuffle = true;
  options.epochs = 3;
  options.packing = true;
  options.max_length = 120;
  BatchPlan packed(lengths(200), options);
  Samples all;
  for (std::uint64_t step = 0; step < packed.num_steps(); ++step) {
    std::uint64_t tokens = 0;
    for (const Samples& batch : packed.micro_batches(step)) {
      for (const std::uint64_t sample : batch) tokens += lengths(200)[sample];
      all.insert(all.end(), batch.begin(), batch.end());
    }
    EXPECT_LE(tokens, 250u) << step;
    EXPECT_GT(tokens, 0u) << step;
  }
  EXPECT_EQ(all.size(), 3u * 171u);
}

// Planned counts are never less than the real ones, and only a little more if sequences have their maximum length: not
// one micro-batch per sequence, nor one per token.
TEST(BatchPlan, MicroBatchesAtMost) {
  for (const std::uint64_t micro_batch : {0, 1, 8}) {
    for (const bool packing : {false, true}) {
      for (const std::uint64_t batch_tokens : {0, 3000, 20000}) {
        for (const bool even : {false, true}) {
          BatchOptions options;
          options.micro_batch = micro_batch;
          options.packing = packing;
          options.max_length = 400;
          options.batch_tokens = batch_tokens;
          options.global_batch = 64;
          options.epochs = 2;
          const std::vector<std::uint32_t> all = even ? std::vector<std::uint32_t>(300, 300) : lengths(300);
          std::uint64_t found = 0, tokens = 0, longest = 0;
          for (const std::uint32_t length : all) {
            tokens += length;
            longest = std::max<std::uint64_t>(longest, length);
          }
          BatchPlan plan(all, options);
          for (std::uint64_t step = 0; step < plan.num_steps(); ++step)
            found = std::max<std::uint64_t>(found, plan.micro_batches(step).size());
          const std::uint64_t most =
              most_micro_batches(options, {packing ? options.max_length : longest, 1, all.size(), tokens});
          EXPECT_LE(found, most) << micro_batch << packing << batch_tokens << even;
          if (even && micro_batch == 0) {
            EXPECT_LE(most, std::max<std::uint64_t>(18, 3 * found)) << packing << batch_tokens;
          }
        }
      }
    }
  }
  BatchOptions options;
  options.batch_tokens = 65536;
  EXPECT_EQ(most_micro_batches(options, {1024}), 129u);  // it was one a token, 65536
  options.batch_tokens = 0;
  options.global_batch = 64;
  options.micro_batch = 8;
  EXPECT_EQ(most_micro_batches(options, {1024}), 8u);
  EXPECT_EQ(most_micro_batches(options, {1024, 4}), 32u);
  EXPECT_EQ(most_micro_batches(options, {1024, 1, 20}), 3u);
}

}  // namespace batch_plan_test
}  // namespace magister
