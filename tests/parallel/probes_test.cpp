// The reports of all ranks arrive completely.
#include "magister/parallel/probes.h"

#include <gtest/gtest.h>

#include "magister/core/host_name.h"
#include "magister/parallel/communicator.h"
#include "parallel/cores.h"

namespace magister {
namespace probes_test {

TEST(Probes, EveryRankIsKnownToAll) {
  const auto world = Communicator::world();
  const std::vector<RankProbe> ranks = probe_ranks(world);
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    const RankProbe& rank = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(rank.world_rank, r);
    EXPECT_EQ(rank.host, host_name());
    EXPECT_EQ(rank.local_rank, r);
    EXPECT_EQ(rank.local_size, world.size());
    EXPECT_FALSE(rank.cores.empty());
  }
  const RankProbe& mine = ranks[static_cast<std::size_t>(world.rank())];
  EXPECT_EQ(mine.cores, allowed_cores());
  EXPECT_EQ(mine.quota_cores, cpu_quota().cores);
  EXPECT_EQ(mine.gpus.size(), discover_gpus().size());
}

// Containers of one image on two nodes: equal names, and yet each node counts its own ranks and shares its own cores.
TEST(Probes, NodesOfEqualNamesAreTwoNodes) {
  const auto world = Communicator::world();
  const std::vector<RankProbe> ranks = probe_ranks(world, world.split(world.rank() % 2, world.rank()));
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    const RankProbe& rank = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(rank.host, ranks[0].host);
    EXPECT_EQ(rank.host_index, r % 2);
    EXPECT_EQ(rank.local_rank, r / 2);
    EXPECT_EQ(rank.local_size, (world.size() + 1 - r % 2) / 2);
  }
  std::vector<RankProbe> two = {ranks[0], ranks[0]};
  two[1].host_index = 1;
  for (RankProbe& rank : two) {
    rank.cores = {0, 1, 2, 3};
    rank.quota_cores = 0;
  }
  EXPECT_EQ(core_shares(two), (std::vector<int>{4, 4}));
  two[1].host_index = two[0].host_index;
  two[1].host = "another name";  // a node's containers may have names of their own
  EXPECT_EQ(core_shares(two), (std::vector<int>{2, 2}));
}

}  // namespace probes_test
}  // namespace magister
