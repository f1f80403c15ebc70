// Sums as kernels between two ranks with two devices each, against pretended_gpu.cpp: which memory each rank opens,
// what it closes, and that a fault of one shard disables the kernels for all. Real devices need real GPUs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/parallel/peer_sums.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/side_by_side.h"
#include "parallel/gpu/peer_sum_kernel.h"
#include "parallel/pretended_gpu.h"

namespace magister {
namespace peer_devices_test {

class PeerDevices : public testing::Test {
 protected:
  void SetUp() override {
    pretended_gpu = {};
    pretended_gpu.first_bus = 2 * world_.rank();
    world_.barrier();
  }
  void TearDown() override { EXPECT_EQ(pretended_gpu.opened, 0); }

  // A shard a device of this rank, which talk over the host.
  void on_devices(const std::function<void(ProcessGroup& group, const gpu::Queue& queue)>& body) {
    auto groups = make_cpu_process_groups(world_, 2);
    run_side_by_side(groups.size(), [&](std::size_t i) {
      const auto mine = std::move(groups[i]);
      body(*mine, gpu::Queue{static_cast<int>(i), nullptr});
    });
  }
  void expect_none() {
    on_devices([](ProcessGroup& group, const gpu::Queue& queue) { EXPECT_EQ(group.peer_sums(queue), nullptr); });
    EXPECT_EQ(pretended_gpu.allocations, 0);
    world_.barrier();
  }
  Communicator world_ = Communicator::world();
};

TEST_F(PeerDevices, AddIntoTheMemoryOfAllOthersAndGiveItBack) {
  on_devices([](ProcessGroup& group, const gpu::Queue& queue) {
    PeerSums* const sums = group.peer_sums(queue);
    ASSERT_NE(sums, nullptr);
    for (const std::int64_t count : {6, 3000, 262149}) {
      at::Tensor numbers = at::arange(count, at::kFloat) * (0.1f + static_cast<float>(group.tp_rank()));
      at::Tensor wanted = numbers.clone();
      group.all_reduce_sum(wanted);
      sums->queue_sum(numbers.data_ptr<float>(), count, queue);
      EXPECT_TRUE(at::equal(numbers, wanted)) << count;
    }
    sums->check();
    group.barrier();
    EXPECT_EQ(pretended_gpu.opened, 4) << "two shards, of two others each";
    EXPECT_EQ(pretended_gpu.accesses, 2) << "and each reaches its neighbour's";
    group.barrier();
    sums->close();
    group.barrier();
    EXPECT_EQ(pretended_gpu.opened, 0);
    sums->free();
  });
  EXPECT_GT(pretended_gpu.kernels, 0);
  EXPECT_EQ(pretended_gpu.allocations, 0);
}

// After a fault a kernel of the other rank may still write: the memory is the driver's to free.
TEST_F(PeerDevices, KeepWhatOtherRanksWriteToWhereNobodyClosed) {
  on_devices([](ProcessGroup& group, const gpu::Queue& queue) { EXPECT_NE(group.peer_sums(queue), nullptr); });
  EXPECT_EQ(pretended_gpu.allocations, 2) << "of two shards";
}

TEST_F(PeerDevices, AreNotWhereOneShardOfOneRankCannot) {
  pretended_gpu.handles_open = world_.rank() != 1;
  expect_none();
  pretended_gpu.handles_open = true;
  pretended_gpu.devices_reach = world_.rank() != 0;
  expect_none();
  pretended_gpu.devices_reach = true;
  pretended_gpu.first_bus = 0;  // both ranks have the same GPUs
  expect_none();
  pretended_gpu.first_bus = 2 * world_.rank();
  pretended_gpu.sums_are_wrong = world_.rank() == 1;
  expect_none();
  pretended_gpu.sums_are_wrong = false;
  if (world_.rank() == 1) setenv("MAGISTER_PEER_SUMS", "0", 1);
  expect_none();
  unsetenv("MAGISTER_PEER_SUMS");
}

}  // namespace peer_devices_test
}  // namespace magister
