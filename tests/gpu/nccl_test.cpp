// The GPU group with a real NCCL: one rank alone (start, streams, end), and two ranks on one GPU if NCCL allows it
// (2.30.3 and newer, NCCL_MULTI_RANK_GPU_ENABLE=1). The sums are known bit by bit. With MAGISTER_GPU_CODE_ON_HOST=1 the
// group of CPUs is used instead, to try these tests.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "magister/core/log.h"
#include "magister/device/gpu.h"
#include "magister/device/upload.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/device_exchange.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"

namespace magister {
namespace {

std::unique_ptr<ProcessGroup> make_group(bool fast = false) {
  const auto world = Communicator::world();
  return gpu::host_plays_gpu() ? make_mpi_process_group(world) : make_nccl_process_group(world, 0, fast);
}

// A rank's addend: integers, so that every order of adding gives the same result in every type.
at::Tensor numbers(std::int64_t count, int rank, at::ScalarType type, at::Device device) {
  return (at::arange(count, at::kLong).remainder(61) + 7 * rank).to(type).to(device);
}

at::Tensor sum_of_all(std::int64_t count, int ranks, at::ScalarType type) {
  at::Tensor sum = at::zeros({count}, at::kLong);
  for (int rank = 0; rank < ranks; ++rank) sum += numbers(count, rank, at::kLong, at::kCPU);
  return sum.to(type);
}

class NcclGroup : public testing::TestWithParam<bool> {};

TEST_P(NcclGroup, SumsOfEveryTypeAndSize) {
  const auto group = make_group(GetParam());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kInt, at::kLong}) {
    for (const std::int64_t count : {1, 7, 4096, 1'000'003}) {
      at::Tensor tensor = numbers(count, group->tp_rank(), type, group->device());
      group->all_reduce_sum(tensor);
      EXPECT_TRUE(at::equal(tensor.cpu(), sum_of_all(count, group->tp_size(), type))) << type << " " << count;
    }
  }
  group->barrier();
}

// Several sums travel on their own stream while the default stream computes.
TEST_P(NcclGroup, SumsInTwoSteps) {
  const auto group = make_group(GetParam());
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(numbers(65'536 + i, group->tp_rank(), i % 2 == 0 ? at::kBFloat16 : at::kFloat, group->device()));
    group->begin_all_reduce_sum(tensors.back());
    at::mm(at::ones({256, 256}, tensors.back().options()), at::ones({256, 256}, tensors.back().options()));
  }
  for (at::Tensor& tensor : tensors) {
    group->finish_all_reduce_sum(tensor);
    const at::Tensor after = tensor + 1;  // queued after the sum
    EXPECT_TRUE(at::equal(after.cpu(), sum_of_all(tensor.numel(), group->tp_size(), tensor.scalar_type()) + 1));
  }
  EXPECT_GE(group->exposed_seconds(), 0);
}

TEST_P(NcclGroup, GathersScattersAndBroadcasts) {
  const auto group = make_group(GetParam());
  const int ranks = group->tp_size(), rank = group->tp_rank();
  const at::Tensor mine = numbers(100, rank, at::kFloat, group->device());
  const at::Tensor all = group->all_gather(mine).cpu();
  ASSERT_EQ(all.size(0), 100 * ranks);
  for (int r = 0; r < ranks; ++r)
    EXPECT_TRUE(at::equal(all.narrow(0, 100 * r, 100), numbers(100, r, at::kFloat, at::kCPU))) << r;
  const at::Tensor part = group->reduce_scatter(numbers(50 * ranks, rank, at::kFloat, group->device())).cpu();
  EXPECT_TRUE(at::equal(part, sum_of_all(50 * ranks, ranks, at::kFloat).narrow(0, 50 * rank, 50)));
  at::Tensor sent = numbers(33, rank, at::kInt, group->device());
  group->broadcast(sent, ranks - 1);
  EXPECT_TRUE(at::equal(sent.cpu(), numbers(33, ranks - 1, at::kInt, at::kCPU)));
  EXPECT_EQ(group->broadcast_number(41 + rank, 0), 41);
}

// Groups end and begin again in one process, as between the tasks of a job.
TEST_P(NcclGroup, EndsAndBeginsAgain) {
  for (int round = 0; round < 3; ++round) {
    const auto group = make_group(GetParam());
    at::Tensor tensor = numbers(1000, group->tp_rank(), at::kFloat, group->device());
    group->all_reduce_sum(tensor);
    group->barrier();
    EXPECT_TRUE(at::equal(tensor.cpu(), sum_of_all(1000, group->tp_size(), at::kFloat))) << round;
  }
}

// A message between ranks of a training carries what the default stream had made before, and what arrives
// can be read after wait(), or by a kernel of the messages' stream.
TEST(DeviceExchange, MessagesFollowTheDefaultStream) {
  const auto world = Communicator::world();
  const int ranks = world.size(), next = (world.rank() + 1) % ranks, before = (world.rank() + ranks - 1) % ranks;
  const gpu::Queue queue = gpu::host_plays_gpu() ? gpu::Queue{} : gpu::Queue{0, nullptr};
  const auto exchange = make_device_exchange(world, queue);
  constexpr std::int64_t kCount = 1'000'003;
  for (int round = 1; round <= 3 && ranks > 1; ++round) {
    const at::Tensor mine = numbers(kCount, world.rank(), at::kFloat, device_of(queue)).mul_(round);
    const at::Tensor arrived = at::zeros_like(mine);
    exchange->follow_default();
    const std::vector<DeviceMessage> messages = {{mine, next, true}, {arrived, before, false}};
    exchange->pass(messages);
    const std::uint64_t mark = exchange->mark();
    exchange->wait();
    EXPECT_TRUE(exchange->reached(mark));
    EXPECT_TRUE(at::equal(arrived.cpu(), numbers(kCount, before, at::kFloat, at::kCPU).mul_(round))) << round;
  }
  exchange->close();
}

INSTANTIATE_TEST_SUITE_P(Collectives, NcclGroup, testing::Bool(),
                         [](const auto& info) { return info.param ? "fast" : "reproducible"; });

// "2.28.9" -> 22809.
int nccl_number() {
  int major = 0, minor = 0, patch = 0;
  std::sscanf(nccl_version().c_str(), "%d.%d.%d", &major, &minor, &patch);
  return 10'000 * major + 100 * minor + patch;
}

// Empty, or why these tests cannot run here.
std::string reason_to_skip(int ranks) {
  if (gpu::host_plays_gpu()) return "";
  if (discover_gpus().empty()) return "no GPU";
  if (ranks > 1 && nccl_number() < 23003)
    return "NCCL " + nccl_version() + " takes one rank a GPU (2.30.3 is the first that takes two)";
  return "";
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  using namespace magister;
  MpiSession session(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  const auto world = Communicator::world();
  set_log_identity(world.rank(), world.size());
  const std::string reason = reason_to_skip(world.size());
  if (!reason.empty()) {
    if (world.rank() == 0) std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  if (world.rank() != 0) {  // one list of tests is enough; a rank that fails reports it by its exit code
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  if (world.size() > 1) setenv("NCCL_MAX_CTAS", "2", 0);  // kernels of both ranks must be on the GPU at once
  if (!gpu::host_plays_gpu()) open_gpu(0);
  const int failed = RUN_ALL_TESTS();
  return world.max(static_cast<std::uint64_t>(failed != 0)) != 0 ? 1 : 0;
}
