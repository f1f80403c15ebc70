// The totals of a plan over all ranks: a record with several samples counts once among those that were cut.
#include "magister/run/sample_plan.h"

#include <gtest/gtest.h>

#include "io/scratch_folder.h"
#include "magister/runtime/stop.h"

namespace magister {
namespace sample_plan_test {

// Records of 2, 5, 3 and 9 tokens, each of which `encode` turns into two samples: whole, and without the first token.
TEST(SamplePlan, CountsRecordsThatWereCut) {
  const Communicator world = Communicator::world();
  const test::ScratchFolder folder(world);
  DatasetConfig config;
  config.tokens_field = "ids";
  config.paths = {folder.write("data.jsonl", R"({"ids": [1, 2]}
{"ids": [1, 2, 3, 4, 5]}
{"ids": [1, 2, 3]}
{"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}
)")};
  world.barrier();
  const Dataset dataset = Dataset::open(world, config);
  const StopSign stop;
  for (const Overflow overflow : {Overflow::kTruncate, Overflow::kWindow}) {
    SampleRules rules;
    rules.max_length = 3;
    rules.overflow = overflow;
    rules.vocab_size = 10;
    EXPECT_EQ(SamplePlan::measure(world, dataset, rules, stop).num_records_cut, 2u);
    rules.encode = [](const Record& record) {
      const std::vector<TokenId>& ids = record.tokens;
      return std::vector<SampleTokens>{{ids, {}}, {{ids.begin() + 1, ids.end()}, {}}};
    };
    const SamplePlan plan = SamplePlan::measure(world, dataset, rules, stop);
    EXPECT_EQ(plan.num_records_cut, 2u);
    EXPECT_EQ(plan.num_samples, overflow == Overflow::kTruncate ? 8u : 14u);
  }
  world.barrier();
}

}  // namespace sample_plan_test
}  // namespace magister
