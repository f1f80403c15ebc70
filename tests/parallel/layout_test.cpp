// Ranks into groups over CPUs, and the layouts that are refused with the sizes that do work.
#include "magister/parallel/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "magister/core/error.h"
#include "magister/core/host_name.h"

namespace magister {
namespace layout_test {

// Sets or removes an environment variable and puts the old value back.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

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

TEST(Layout, SeveralGroups) {
  const auto world = Communicator::world();
  const int ranks = world.size() == 1 ? 1 : 2, groups = world.size() / ranks;  // in a group; groups of 4 ranks: 2
  LayoutConfig config;
  config.gpus_per_group = ranks;
  const GpuGroup group = GpuGroup::resolve(world, config);
  EXPECT_EQ(group.num_groups(), groups);
  EXPECT_EQ(group.group_index(), world.rank() / ranks);
  EXPECT_EQ(group.first_tp_rank(), world.rank() % ranks);
  EXPECT_EQ(group.members().size(), ranks);
  EXPECT_EQ(group.members().rank(), world.rank() % ranks);
  EXPECT_EQ(group.leaders().size(), group.is_leader() ? groups : 1);
  EXPECT_EQ(group.leaders().rank(), group.is_leader() ? world.rank() / 2 : 0);
  const auto rows = world.all_gather(group.table().back().device + group.table().back().host);
  EXPECT_EQ(rows.front(), rows.back());
}

TEST(Layout, SeveralGroupsOfARank) {
  const auto world = Communicator::world();
  LayoutConfig config;
  config.shards_per_rank = 4;
  config.gpus_per_group = 2;
  const GpuGroup group = GpuGroup::resolve(world, config);
  EXPECT_EQ(group.num_groups(), 2 * world.size());
  EXPECT_EQ(group.group_index(), 2 * world.rank());
  EXPECT_EQ(group.groups_here(), 2);
  EXPECT_EQ(group.shards_here(), 4);
  EXPECT_EQ(group.tp_size(), 2);
  EXPECT_EQ(group.members().size(), 1);
  EXPECT_TRUE(group.is_leader());
}

// The memories that MAGISTER_GPUS_ON_HOST lists, divided over the ranks.
TEST(Layout, GpusThatTheHostPlays) {
  const auto world = Communicator::world();
  const Environment played("MAGISTER_GPUS_ON_HOST", "100,90,80,70");
  EXPECT_TRUE(gpus_on_host());
  LayoutConfig config;
  config.gpus_usable = true;
  const GpuGroup group = GpuGroup::resolve(world, config);
  EXPECT_TRUE(group.on_gpu());
  ASSERT_EQ(static_cast<int>(group.devices().size()), 4 / world.size());
  EXPECT_EQ(group.devices().front(), 4 / world.size() * world.rank());
  EXPECT_EQ(group.table()[2].gpu->free_bytes, std::uint64_t{80} << 20);
  const HostPlace place = host_place(world);
  EXPECT_EQ(place.gpu_size, world.size());
  EXPECT_EQ(place.gpu_rank, world.rank());
}

TEST(Layout, ARefusalIsTheSameOnEveryRank) {
  const auto world = Communicator::world();
  LayoutConfig config;
  config.gpus_per_group = world.size() + 1;
  std::string text;
  try {
    GpuGroup::resolve(world, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    text = error.what();
  }
  EXPECT_FALSE(text.empty());
  for (const std::string& theirs : world.all_gather(text)) EXPECT_EQ(theirs, text);
}

TEST(Layout, PlansWithoutTheRanks) {
  LayoutConfig config;
  config.gpus_per_group = 2;
  const auto world = Communicator::world();
  const auto rows = plan_layout(world, 6, config);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[5].group_index, 2);
  EXPECT_EQ(rows[5].tp_rank, 1);
  EXPECT_EQ(rows[5].host, host_name());
  EXPECT_TRUE(group_size_divides(rows, 3));
  EXPECT_FALSE(group_size_divides(rows, 4));
  EXPECT_THROW(plan_layout(world, 5, config), Error);
  EXPECT_THROW(plan_layout(world, 0, config), Error);
}

TEST(Layout, RefusesALonelyRankInsideALargerLaunch) {
  const Environment no_launcher("OMPI_COMM_WORLD_SIZE", nullptr);
  for (const char* name : {"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
    const Environment launched(name, "8");
    try {
      refuse_singleton_launch(1);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_NE(std::string(error.what()).find(std::string(name) + " is 8"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("MAGISTER_ALLOW_SINGLETON=1"), std::string::npos) << error.what();
    }
    EXPECT_NO_THROW(refuse_singleton_launch(8));
    {
      const Environment allowed("MAGISTER_ALLOW_SINGLETON", "1");
      EXPECT_NO_THROW(refuse_singleton_launch(1));
    }
    const Environment not_allowed("MAGISTER_ALLOW_SINGLETON", "0");
    EXPECT_THROW(refuse_singleton_launch(1), Error);
  }
  EXPECT_NO_THROW(refuse_singleton_launch(1));
}

TEST(Layout, OneRankByMpirunInsideALargerAllocationIsMeant) {
  const Environment allocation("SLURM_NTASKS", "8");
  {
    const Environment mpirun("OMPI_COMM_WORLD_SIZE", "1");
    EXPECT_NO_THROW(refuse_singleton_launch(1));
  }
  const Environment no_mpirun("OMPI_COMM_WORLD_SIZE", nullptr);
  const Environment step("SLURM_STEP_NUM_TASKS", "1");
  EXPECT_NO_THROW(refuse_singleton_launch(1));
}

}  // namespace layout_test
}  // namespace magister
