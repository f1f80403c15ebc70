// The layout as a pure function: clusters that exist only here, with the groups they give and the messages they earn.
#include "parallel/layout_solver.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "magister/core/error.h"

namespace magister {
namespace layout_solver_test {

// ranks_of_host[h] ranks on host h, each with all of the host's cores and the GPUs that `gpus` names for it.
std::vector<RankProbe> cluster(const std::vector<int>& ranks_of_host, int cores, int gpus_per_host) {
  std::vector<RankProbe> ranks;
  for (std::size_t host = 0; host < ranks_of_host.size(); ++host) {
    for (int local = 0; local < ranks_of_host[host]; ++local) {
      RankProbe rank;
      rank.world_rank = static_cast<int>(ranks.size());
      rank.host = "node" + std::to_string(host);
      rank.host_index = static_cast<int>(host);
      rank.local_rank = local;
      rank.local_size = ranks_of_host[host];
      for (int core = 0; core < cores; ++core) rank.cores.push_back(core);
      for (int gpu = 0; gpu < gpus_per_host; ++gpu) {
        rank.gpus.push_back(
            {gpu, "Test GPU", "GPU-" + std::to_string(host) + "-" + std::to_string(gpu), "", 80, 70, 90});
      }
      ranks.push_back(rank);
    }
  }
  find_gpu_sharers(ranks);
  return ranks;
}

// One host per entry, with that number of GPUs and one rank.
std::vector<RankProbe> hosts_of(const std::vector<int>& gpus) {
  std::vector<RankProbe> ranks = cluster(std::vector<int>(gpus.size(), 1), 16, 8);
  for (std::size_t i = 0; i < gpus.size(); ++i) ranks[i].gpus.resize(static_cast<std::size_t>(gpus[i]));
  return ranks;
}

using Indices = std::vector<int>;

std::string refusal(const std::vector<RankProbe>& ranks, const LayoutConfig& config) {
  try {
    solve_layout(ranks, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    return error.what();
  }
  return "(no refusal)";
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

LayoutConfig on_gpus() {
  LayoutConfig config;
  config.gpus_usable = true;
  return config;
}

TEST(LayoutSolver, CpuGroupsOfRanksAndShards) {
  LayoutConfig config;
  config.shards_per_rank = 2;
  config.gpus_per_group = 4;
  const LayoutSolution solution = solve_layout(cluster({4, 4}, 16, 0), config);
  EXPECT_EQ(solution.num_groups, 4);
  EXPECT_EQ(solution.tp_size, 4);
  ASSERT_EQ(solution.table.size(), 16u);
  EXPECT_EQ(solution.places[5].group_index, 2);
  EXPECT_EQ(solution.places[5].first_tp_rank, 2);
  EXPECT_EQ(solution.places[5].threads_per_shard, 2);  // 16 cores, 4 ranks, 2 shards each
  EXPECT_TRUE(solution.places[5].devices.empty());
  EXPECT_EQ(solution.table[11].world_rank, 5);
  EXPECT_EQ(solution.table[11].host, "node1");
  EXPECT_EQ(solution.table[11].tp_rank, 3);
  EXPECT_EQ(solution.table[11].device, "cpu shard 1 (2 threads)");
}

// Tasks at the same time on one host: its ranks 3 and 1 are solved without the others, and each keeps its GPU.
TEST(LayoutSolver, APartOfAJobKeepsItsGpus) {
  const std::vector<RankProbe> job = cluster({4}, 16, 4);
  std::vector<RankProbe> part = {job[1], job[3]};
  for (std::size_t i = 0; i < part.size(); ++i) part[i].world_rank = static_cast<int>(i);
  LayoutConfig config = on_gpus();
  config.gpus_per_group = 1;
  const LayoutSolution solution = solve_layout(part, config);
  EXPECT_EQ(solution.places[0].devices, Indices{1});
  EXPECT_EQ(solution.places[1].devices, Indices{3});
}

TEST(LayoutSolver, CoresAreSharedFairly) {
  std::vector<RankProbe> ranks = cluster({3}, 8, 0);
  EXPECT_EQ(core_shares(ranks), (std::vector<int>{2, 2, 2}));  // 8 cores for all three
  ranks[0].cores = {0, 1, 2, 3};                               // bound; the others still see all
  EXPECT_EQ(core_shares(ranks), (std::vector<int>{1, 3, 3}));  // 4/3; 4/3 + 4/2
  ranks[1].cores = {4};
  ranks[2].cores = {5, 6};
  EXPECT_EQ(core_shares(ranks), (std::vector<int>{4, 1, 2}));  // disjoint
  for (RankProbe& rank : ranks) rank.quota_cores = 3, rank.quota_group = "/job";
  EXPECT_EQ(core_shares(ranks), (std::vector<int>{1, 1, 1}));  // three cores' worth of time for three ranks
  ranks[2].host_index = 7;
  EXPECT_EQ(core_shares(ranks), (std::vector<int>{1, 1, 2}));
  for (RankProbe& rank : ranks) rank.cores = {};  // the system does not say
  EXPECT_EQ(core_shares(ranks), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(core_shares(cluster({3}, 3, 0)), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(core_shares(cluster({7}, 7, 0)), std::vector<int>(7, 1));
  EXPECT_EQ(core_shares(cluster({6}, 48, 0)), std::vector<int>(6, 8));
}

// The words of `plan` and of a run: "0+1 2+3" are groups of cuda:0 with 1 and 2 with 3.
std::string grouped(const LayoutSolution& solution) {
  std::map<int, std::string> groups;
  for (const DeviceRow& row : solution.table)
    groups[row.group_index] += (groups[row.group_index].empty() ? "" : "+") + std::to_string(row.gpu->index);
  std::string all;
  for (const auto& [index, group] : groups) all += (all.empty() ? "" : " ") + group;
  return all;
}

std::vector<RankProbe> with_memories(std::vector<RankProbe> ranks, const std::vector<std::uint64_t>& gib) {
  for (RankProbe& rank : ranks) {
    for (std::size_t i = 0; i < rank.gpus.size(); ++i)
      rank.gpus[i].total_bytes = rank.gpus[i].free_bytes = gib[i] << 30;
  }
  return ranks;
}

// Four A100s and four V100s: pairs and singles contain one kind of card, for every order of the cards, with one rank
// per card or one for all.
TEST(LayoutSolver, LikeCardsArePairedFirst) {
  const std::vector<std::uint64_t> four_and_four = {80, 80, 80, 80, 32, 32, 32, 32},
                                   in_turn = {80, 32, 80, 32, 80, 32, 80, 32};
  for (const auto& [ranks_of_host, sizes, memories, groups] :
       std::vector<std::tuple<int, std::vector<GroupShares::Part>, std::vector<std::uint64_t>, std::string>>{
           {8, {{2, 2}, {1, 1}}, four_and_four, "0+1 2+3 4+5 6 7"},
           {8, {{2, 2}, {1, 1}}, in_turn, "0+2 4+6 1+3 5 7"},
           {8, {{2, 1}}, in_turn, "0+2 4+6 1+3 5+7"},
           {1, {{2, 1}}, in_turn, "0+2 4+6 1+3 5+7"},
           {4, {{2, 1}}, in_turn, "0+2 4+6 1+3 5+7"},
           {8, {{4, 1}}, in_turn, "0+2+4+6 1+3+5+7"}}) {
    LayoutConfig config = on_gpus();
    if (sizes.size() > 1) config.shares = GroupShares(sizes);
    if (sizes.size() == 1) config.gpus_per_group = sizes.front().size;
    const LayoutSolution solution = solve_layout(with_memories(cluster({ranks_of_host}, 16, 8), memories), config);
    EXPECT_EQ(grouped(solution), groups);
    EXPECT_EQ(unlike_cards(solution.table), "");
  }
}

TEST(LayoutSolver, AGroupOfUnlikeCardsIsSaid) {
  LayoutConfig config = on_gpus();
  config.gpus_per_group = 2;
  const std::vector<RankProbe> three_and_one = with_memories(cluster({4}, 16, 4), {80, 32, 80, 80});
  std::string said = unlike_cards(solve_layout(three_and_one, config).table);
  EXPECT_SAYS(said,
              "1 of 2 groups of unlike cards: group 1: cuda:3 Test GPU of 80.0 GiB on node0, cuda:1 Test GPU of 32.0 "
              "GiB on node0");
  config.devices = {0, 1, 2, 3};  // the order is the user's
  said = unlike_cards(solve_layout(three_and_one, config).table);
  EXPECT_SAYS(said, "group 0: cuda:0 Test GPU of 80.0 GiB on node0, cuda:1");
  EXPECT_EQ(unlike_cards(solve_layout(cluster({2}, 4, 0), LayoutConfig()).table), "");
}

TEST(LayoutSolver, WhatDoesNotDivideIsRefusedWithTheSizesThatDo) {
  LayoutConfig config;
  config.gpus_per_group = 4;
  std::string text = refusal(cluster({6}, 8, 0), config);
  EXPECT_SAYS(text, "layout.gpus_per_group: 4 with 6 ranks");
  EXPECT_SAYS(text, "6 devices in all");
  EXPECT_SAYS(text, "may be 1, 2, 3, 6 here, or start ranks for a multiple of 4 devices (mpirun -np; plan --ranks)");
  config.gpus_per_group = 3;
  config.shards_per_rank = 2;
  text = refusal(cluster({3}, 8, 0), config);
  EXPECT_SAYS(text, "3 ranks of 2 devices each (6 devices in all)");
  EXPECT_SAYS(text, "may be 1, 2, 6 here");
  config.gpus_per_group = 2'000'000'000;
  EXPECT_SAYS(refusal(cluster({3}, 8, 0), config), "2000000000");
  config.gpus_per_group = -1;
  EXPECT_SAYS(refusal(cluster({1}, 8, 0), config), "gpus_per_group: -1");
  config.shards_per_rank = 0;
  EXPECT_SAYS(refusal(cluster({1}, 8, 0), config), "shards_per_rank: 0");
  config.shards_per_rank = 100'000;
  EXPECT_SAYS(refusal(cluster({1}, 8, 0), config), "1 to 1024");
  EXPECT_SAYS(refusal({}, LayoutConfig{}), "0 ranks");
}

TEST(LayoutSolver, OneGpuARank) {
  LayoutConfig config = on_gpus();
  config.gpus_per_group = 4;
  const LayoutSolution solution = solve_layout(cluster({4, 4}, 32, 4), config);
  EXPECT_TRUE(solution.on_gpu);
  EXPECT_EQ(solution.num_groups, 2);
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(solution.places[static_cast<std::size_t>(rank)].devices, Indices{rank % 4});
  EXPECT_EQ(solution.table[6].device, "cuda:2 Test GPU GPU-1-2");
  EXPECT_EQ(solution.table[6].group_index, 1);
  EXPECT_EQ(solution.table[6].tp_rank, 2);
}

TEST(LayoutSolver, GpusIsolatedByTheScheduler) {
  auto ranks = cluster({2}, 8, 1);
  EXPECT_SAYS(refusal(ranks, on_gpus()), "rank 0 on node0 and rank 1 on node0 would both use the GPU GPU-0-0");
  ranks[1].gpus[0].uuid = "GPU-0-1";  // each rank sees its own as cuda:0
  const LayoutSolution solution = solve_layout(ranks, on_gpus());
  EXPECT_EQ(solution.places[1].devices, Indices{0});
  EXPECT_EQ(solution.num_groups, 2);
}

TEST(LayoutSolver, ARankDrivesItsPartOfTheHostsGpus) {
  LayoutConfig config = on_gpus();
  LayoutSolution solution = solve_layout(cluster({1}, 16, 8), config);
  EXPECT_EQ(solution.tp_size, 8) << "auto, where nobody asked for memory";
  EXPECT_EQ(solution.places[0].devices, (Indices{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(solution.places[0].threads_per_shard, 2);
  config.gpus_per_group = 2;  // several groups in a rank
  solution = solve_layout(cluster({2}, 16, 8), config);
  EXPECT_EQ(solution.num_groups, 4);
  EXPECT_EQ(solution.places[1].devices, (Indices{4, 5, 6, 7}));
  EXPECT_EQ(solution.places[1].groups, 2);
  EXPECT_EQ(solution.places[1].group_index, 2);
  EXPECT_EQ(solution.places[1].first_tp_rank, 0);
  EXPECT_EQ(solution.table[7].device, "cuda:7 Test GPU GPU-0-7");
  EXPECT_EQ(solution.table[7].group_index, 3);
  EXPECT_EQ(solution.table[7].tp_rank, 1);
  config.gpus_per_group = 8;  // and groups of several ranks, evenly
  solution = solve_layout(cluster({2, 2}, 16, 8), config);
  EXPECT_EQ(solution.num_groups, 2);
  EXPECT_EQ(solution.places[3].groups, 1);
  EXPECT_EQ(solution.places[3].group_index, 1);
  EXPECT_EQ(solution.places[3].first_tp_rank, 4);
  EXPECT_EQ(solution.table[15].gpu->uuid, "GPU-1-7");
}

TEST(LayoutSolver, GpusThatDoNotDivideOverTheRanks) {
  LayoutConfig config = on_gpus();
  config.gpus_per_group = 1;
  const auto ranks = cluster({3}, 16, 8);
  const std::string text = refusal(ranks, config);
  EXPECT_SAYS(text, "3 ranks run on node0 with 8 GPUs to choose from, which do not divide");
  EXPECT_SAYS(text, "start 1, 2, 4, 8 ranks there, or set layout.devices_per_rank to 2 and leave 2 GPUs idle");
  config.devices_per_rank = 2;
  EXPECT_EQ(solve_layout(ranks, config).places[2].devices, (Indices{4, 5}));
  config.devices_per_rank = 3;
  EXPECT_SAYS(refusal(ranks, config), "layout.devices_per_rank: 3 needs 9");
  config.devices_per_rank = -1;
  EXPECT_SAYS(refusal(ranks, config), "devices_per_rank: -1");
  config.devices_per_rank = 0;
  EXPECT_SAYS(refusal(cluster({9}, 16, 8), config), "9 ranks run on node0 with 8 GPUs to choose from (a rank drives");
}

TEST(LayoutSolver, SeveralGpusIsolatedByTheScheduler) {
  auto ranks = cluster({2}, 8, 4);
  ranks[0].gpus.resize(2);
  ranks[1].gpus.erase(ranks[1].gpus.begin(), ranks[1].gpus.begin() + 2);
  for (int gpu = 0; gpu < 2; ++gpu) ranks[1].gpus[static_cast<std::size_t>(gpu)].index = gpu;
  find_gpu_sharers(ranks);
  LayoutConfig config = on_gpus();
  config.gpus_per_group = 4;
  const LayoutSolution solution = solve_layout(ranks, config);
  EXPECT_EQ(solution.places[1].devices, (Indices{0, 1}));
  EXPECT_EQ(solution.table[3].device, "cuda:1 Test GPU GPU-0-3");
  ranks[1].gpus[0].uuid = "GPU-0-1";  // by CUDA_VISIBLE_DEVICES=0,1 and 1,3
  EXPECT_SAYS(refusal(ranks, config), "would both use the GPU GPU-0-1");
}

// CUDA shows a process one instance of a divided GPU, each with a UUID of its own.
TEST(LayoutSolver, InstancesOfADividedGpu) {
  auto ranks = cluster({2}, 8, 1);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].gpus[0].uuid = "GPU-0-0-instance-" + std::to_string(i);
  find_gpu_sharers(ranks);
  EXPECT_EQ(solve_layout(ranks, on_gpus()).num_groups, 2);
  LayoutConfig two = on_gpus();
  two.devices_per_rank = 2;
  EXPECT_SAYS(refusal(ranks, two), "1 rank run on node0 with 1 GPU to choose from, and layout.devices_per_rank: 2");
}

TEST(LayoutSolver, HostsOfUnlikeNumbersOfGpus) {
  LayoutConfig config = on_gpus();
  LayoutSolution solution = solve_layout(hosts_of({8, 4}), config);
  EXPECT_EQ(solution.tp_size, 4) << "auto: the largest that divides both";
  EXPECT_EQ(solution.num_groups, 3);
  EXPECT_EQ(solution.places[0].groups, 2);
  EXPECT_EQ(solution.places[1].group_index, 2);
  config.gpus_per_group = 8;
  const std::string text = refusal(hosts_of({8, 4}), config);
  EXPECT_SAYS(text, "layout.gpus_per_group: 8 with 2 ranks of 8, 4 devices (12 devices in all)");
  EXPECT_SAYS(text, "may be 1, 2, 4 here");
  solution = solve_layout(hosts_of({4, 4, 8}), config);
  EXPECT_EQ(solution.num_groups, 2);
  EXPECT_EQ(solution.places[2].group_index, 1);
  EXPECT_SAYS(refusal(hosts_of({4, 8, 4}), config), "may be 1, 2, 4 here");
  config.gpus_per_group = 6;  // 4 + 2: shards of a group would be divided unevenly over its ranks
  EXPECT_SAYS(refusal(hosts_of({4, 2}), config), "may be 1, 2 here");
}

TEST(LayoutSolver, SeveralCpuGroupsInARank) {
  LayoutConfig config;
  config.shards_per_rank = 6;
  config.gpus_per_group = 2;
  const LayoutSolution solution = solve_layout(cluster({2}, 12, 0), config);
  EXPECT_EQ(solution.num_groups, 6);
  EXPECT_EQ(solution.places[1].groups, 3);
  EXPECT_EQ(solution.places[1].group_index, 3);
  EXPECT_EQ(solution.table[9].device, "cpu shard 3 (1 thread)");
  EXPECT_EQ(solution.table[9].group_index, 4);
}

TEST(LayoutSolver, RanksThatAreNotThereAreLikeTheOneThatIs) {
  const RankProbe like = cluster({1}, 16, 8)[0];
  LayoutConfig config = on_gpus();
  config.gpus_per_group = 8;
  LayoutSolution solution = solve_layout(invented_ranks(like, 2, config), config);
  EXPECT_EQ(solution.places[1].devices, (Indices{4, 5, 6, 7})) << "both have room on one host";
  solution = solve_layout(invented_ranks(like, 16, config), config);
  EXPECT_EQ(solution.num_groups, 2) << "16 are a GPU each of two hosts";
  EXPECT_EQ(solution.table[8].host, "node0 (2)");
  EXPECT_EQ(solution.places[15].devices, Indices{7});
}

// As many hosts as the ranks need, equally many ranks on each; what a run there would refuse, the plan refuses.
TEST(LayoutSolver, RanksThatAreNotThereHaveTheHostsThatTheyNeed) {
  const RankProbe like = cluster({1}, 16, 4)[0];
  LayoutConfig config = on_gpus();
  const std::string text = refusal(invented_ranks(like, 6, config), config);
  EXPECT_SAYS(text, "3 ranks run on node0 with 4 GPUs to choose from, which do not divide");
  EXPECT_SAYS(text, "start 1, 2, 4 ranks there, or set layout.devices_per_rank to 1 and leave 1 GPU idle");
  config.devices_per_rank = 1;
  LayoutSolution solution = solve_layout(invented_ranks(like, 6, config), config);
  EXPECT_EQ(solution.num_groups, 6);
  EXPECT_EQ(solution.table[2].host, "node0");
  EXPECT_EQ(solution.table[3].host, "node0 (2)");
  config.devices_per_rank = 2;
  solution = solve_layout(invented_ranks(like, 6, config), config);
  EXPECT_EQ(solution.table.size(), 12u);
  EXPECT_EQ(solution.table[11].host, "node0 (3)") << "two ranks of two GPUs each on a host";
  config.devices_per_rank = 0;
  config.devices = {0, 2};
  solution = solve_layout(invented_ranks(like, 6, config), config);
  EXPECT_EQ(solution.table[5].host, "node0 (3)");
  config = {};
  config.cpu_only = true;
  for (const int ranks : {6, 8}) {
    solution = solve_layout(invented_ranks(like, ranks, config), config);
    EXPECT_EQ(solution.table.back().host, "node0") << "CPUs do not run out";
  }
}

TEST(LayoutSolver, AListOfDevices) {
  LayoutConfig config = on_gpus();
  config.devices = {3, 1};
  const LayoutSolution solution = solve_layout(cluster({2}, 8, 4), config);
  EXPECT_EQ(solution.places[0].devices, Indices{3});
  EXPECT_EQ(solution.places[1].devices, Indices{1});
  EXPECT_EQ(solve_layout(cluster({1}, 8, 4), config).places[0].devices, (Indices{3, 1}));
  EXPECT_SAYS(refusal(cluster({3}, 8, 4), config), "3 ranks run on node0 with 2 GPUs to choose from");
  config.devices = {0, 7};
  const std::string text = refusal(cluster({2}, 8, 2), config);
  EXPECT_SAYS(text, "layout.devices names 7");
  EXPECT_SAYS(text, "cuda:0 GPU-0-0, cuda:1 GPU-0-1");
  config.devices = {1, 1};
  EXPECT_SAYS(refusal(cluster({2}, 8, 2), config), "would both use the GPU GPU-0-1");
  EXPECT_SAYS(refusal(cluster({1}, 8, 2), config), "gives rank 0 on node0 the GPU GPU-0-1 twice");
  config.devices = {0};
  EXPECT_SAYS(refusal(cluster({1}, 8, 0), config), "sees no GPU");
}

TEST(LayoutSolver, GpusAreUsedOnlyWhereTheTaskCanAndTheUserWants) {
  EXPECT_FALSE(solve_layout(cluster({2}, 8, 2), {}).on_gpu);  // the task cannot
  LayoutConfig config = on_gpus();
  EXPECT_FALSE(solve_layout(cluster({2}, 8, 0), config).on_gpu);  // there are none
  config.cpu_only = true;
  EXPECT_FALSE(solve_layout(cluster({2}, 8, 2), config).on_gpu);
  config.devices = {0};
  EXPECT_SAYS(refusal(cluster({2}, 8, 2), config), "cpu and also names GPUs");
  LayoutConfig named;
  named.devices = {0, 1};
  EXPECT_SAYS(refusal(cluster({2}, 8, 2), named), "computes on CPUs only");
  auto mixed = cluster({1, 1}, 8, 1);
  mixed[1].gpus.clear();
  EXPECT_SAYS(refusal(mixed, on_gpus()), "rank 1 on node1 (local rank 0 of 1) sees no GPU while other ranks see some");
  LayoutConfig threads = on_gpus();
  threads.shards_per_rank = 2;
  EXPECT_SAYS(refusal(cluster({1}, 8, 2), threads), "shards in threads are for CPUs");
}

// "4 0/2" for a rank that is shard 2 of group 0 of four, "1 5+2" for one that holds groups 5 and 6 of one device.
std::vector<std::string> groups_of(const LayoutSolution& solution) {
  std::vector<std::string> words;
  for (const RankPlace& place : solution.places) {
    words.push_back(place.groups > 1
                        ? fmt::format("{} {}+{}", place.group_size, place.group_index, place.groups)
                        : fmt::format("{} {}/{}", place.group_size, place.group_index, place.first_tp_rank));
  }
  return words;
}
using Words = std::vector<std::string>;

LayoutConfig of_sizes(std::vector<GroupShares::Part> parts) {
  LayoutConfig config;
  config.shares = GroupShares(std::move(parts));
  return config;
}

TEST(MixedLayout, SharesDecideHowManyGroupsThereAre) {
  const LayoutConfig config = of_sizes({{2, 2}, {1, 1}});
  LayoutSolution solution = solve_layout(cluster({5}, 16, 0), config);
  EXPECT_EQ(groups_of(solution), (Words{"2 0/0", "2 0/1", "1 1/0", "2 2/0", "2 2/1"}));
  EXPECT_EQ(solution.num_groups, 3);
  EXPECT_EQ(solution.groups_of_size, (Indices{2, 1}));
  EXPECT_EQ(solution.places[4].first_of_size, 1);
  EXPECT_EQ(solution.table[3].group_size, 2);
  // Three quarters of the units for one device each: more of them.
  solution = solve_layout(cluster({8}, 16, 0), of_sizes({{2, 1}, {1, 3}}));
  EXPECT_EQ(solution.groups_of_size, (Indices{1, 6}));
  // Nothing is left over: a second group of 3 would leave one device.
  solution = solve_layout(cluster({9}, 16, 0), of_sizes({{3, 9}, {2, 1}}));
  EXPECT_EQ(solution.groups_of_size, (Indices{1, 3}));
}

TEST(MixedLayout, GroupsStayInsideHosts) {
  const LayoutSolution solution = solve_layout(cluster({3, 3}, 16, 0), of_sizes({{2, 2}, {1, 1}}));
  EXPECT_EQ(groups_of(solution), (Words{"2 0/0", "2 0/1", "1 1/0", "2 2/0", "2 2/1", "1 3/0"}));
  EXPECT_SAYS(refusal(cluster({2, 2}, 16, 0), of_sizes({{3, 2}, {1, 1}})), "there would be no group of 3");
}

TEST(MixedLayout, ARankHoldsGroupsOfOneSize) {
  LayoutConfig config = of_sizes({{4, 1}, {1, 1}});
  config.shards_per_rank = 2;
  const LayoutSolution solution = solve_layout(cluster({3}, 16, 0), config);
  EXPECT_EQ(groups_of(solution), (Words{"4 0/0", "4 0/2", "1 1+2"}));
  EXPECT_EQ(solution.groups_of_size, (Indices{1, 2}));
  EXPECT_EQ(solution.table[5].group_index, 2);
  EXPECT_EQ(solution.table[5].tp_rank, 0);
  config = of_sizes({{3, 1}, {1, 1}});
  config.shards_per_rank = 2;
  EXPECT_SAYS(refusal(cluster({3}, 16, 0), config), "there would be no group of 3");
  config.shards_per_rank = 6;
  EXPECT_SAYS(refusal(cluster({1}, 16, 0), config), "node0 (1 rank of 6 devices)");
}

// A smaller group needs more of each GPU, so it gets the larger ones, at any place in the list.
TEST(MixedLayout, LargeGpusAreForSmallGroups) {
  std::vector<RankProbe> ranks = cluster({6}, 16, 6);
  for (RankProbe& rank : ranks) {
    for (std::size_t i = 0; i < 6; ++i) rank.gpus[i].free_bytes = rank.gpus[i].total_bytes = i == 0 || i == 3 ? 80 : 40;
  }
  LayoutConfig config = of_sizes({{4, 3}, {2, 1}});
  config.gpus_usable = true;
  config.needed_bytes = {30, 50};
  LayoutSolution solution = solve_layout(ranks, config);
  EXPECT_EQ(groups_of(solution), (Words{"2 0/0", "2 0/1", "4 1/0", "4 1/1", "4 1/2", "4 1/3"}));
  EXPECT_EQ(grouped(solution), "0+3 1+2+4+5");
  config.needed_bytes = {30, 81};
  std::string text = refusal(ranks, config);
  EXPECT_SAYS(text, "there would be no group of 2, whose GPUs need 81 B free each");
  config.kept_bytes = {{"GPU-0-0", 1}, {"GPU-0-3", 1}};  // earlier tasks left there what is given back
  EXPECT_EQ(groups_of(solve_layout(ranks, config)), groups_of(solution));
  // The small ones that no group of four takes are no place for two.
  ranks = cluster({8}, 16, 8);
  for (RankProbe& rank : ranks) {
    for (std::size_t i = 0; i < 8; ++i) rank.gpus[i].free_bytes = rank.gpus[i].total_bytes = i < 2 ? 80 : 40;
  }
  config.kept_bytes = {};
  config.needed_bytes = {30, 50};
  EXPECT_SAYS(refusal(ranks, config), "2 ranks of node0 (8 ranks of 1 device) would be left over");
}

TEST(MixedLayout, ManyRanksTakeSeconds) {
  const LayoutSolution solution =
      solve_layout(invented_ranks(cluster({1}, 16, 0)[0], 100'001, {}), of_sizes({{4, 4}, {1, 1}}));
  EXPECT_EQ(solution.groups_of_size[0] * 4 + solution.groups_of_size[1], 100'001);
}

}  // namespace layout_solver_test
}  // namespace magister
