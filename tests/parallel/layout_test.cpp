// Ranks into groups over CPUs, and the layouts that are refused with the sizes that do work.
#include "magister/parallel/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "magister/core/error.h"

namespace magister {
namespace {

std::string refusal(int num_ranks, const LayoutConfig& config) {
  try {
    plan_layout(num_ranks, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    return error.what();
  }
  return "";
}

TEST(Layout, AGroupOfOneRankIsTheDefault) {
  const auto world = Communicator::world();
  const GpuGroup group = GpuGroup::resolve(world, {});
  EXPECT_EQ(group.num_groups(), world.size());
  EXPECT_EQ(group.group_index(), world.rank());
  EXPECT_EQ(group.tp_size(), 1);
  EXPECT_TRUE(group.is_leader());
  EXPECT_EQ(group.table().size(), static_cast<std::size_t>(world.size()));
  EXPECT_GE(group.threads_per_shard(), 1);
}

TEST(Layout, AGroupSpansRanksAndShards) {
  const auto world = Communicator::world();
  LayoutConfig config;
  config.shards_per_rank = 2;
  config.gpus_per_group = 2 * world.size();
  const GpuGroup group = GpuGroup::resolve(world, config);
  EXPECT_EQ(group.num_groups(), 1);
  EXPECT_EQ(group.tp_size(), 2 * world.size());
  EXPECT_EQ(group.first_tp_rank(), 2 * world.rank());
  EXPECT_EQ(group.members().size(), world.size());
  EXPECT_EQ(group.is_leader(), world.rank() == 0);
}

TEST(Layout, RefusesWhatDoesNotDivideWithTheValuesAndTheSizesThatDo) {
  LayoutConfig config;
  config.gpus_per_group = 4;
  EXPECT_NE(refusal(6, config).find("6 ranks with 1 shards each are 6 devices, which 4"), std::string::npos) << refusal(6, config);
  EXPECT_NE(refusal(6, config).find("may be 1, 2, 3, 6"), std::string::npos) << refusal(6, config);
  config.gpus_per_group = 3;
  config.shards_per_rank = 2;
  EXPECT_NE(refusal(3, config).find("multiple of layout.shards_per_rank"), std::string::npos) << refusal(3, config);
}

TEST(Layout, RefusesALonelyRankInsideALargerLaunch) {
  for (const char* name : {"SLURM_NTASKS", "PMI_SIZE"}) {
    const char* before = std::getenv(name);
    const std::string kept = before == nullptr ? "" : before;
    setenv(name, "8", 1);
    EXPECT_THROW(refuse_singleton_launch(1), Error);
    EXPECT_NO_THROW(refuse_singleton_launch(8));
    setenv("MAGISTER_ALLOW_SINGLETON", "1", 1);
    EXPECT_NO_THROW(refuse_singleton_launch(1));
    unsetenv("MAGISTER_ALLOW_SINGLETON");
    if (before == nullptr) unsetenv(name); else setenv(name, kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace magister
