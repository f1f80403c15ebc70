// The GPU group against pretended_gpu.cpp: it polls, has a time limit, aborts on faults, leaves nothing open. Real sums
// need real GPUs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/device_exchange.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/side_by_side.h"
#include "parallel/pretended_gpu.h"

namespace magister {
namespace nccl_faults_test {

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class NcclFaults : public testing::Test {
 protected:
  void SetUp() override {
    pretended_gpu = {};
    unsetenv("MAGISTER_NCCL_TIMEOUT_SECONDS");
    world_.barrier();
  }
  void TearDown() override {
    EXPECT_EQ(pretended_gpu.communicators, 0);
    EXPECT_EQ(pretended_gpu.allocations, 0);
  }
  std::string failure_of(ProcessGroup& group) {
    try {
      group.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInternal);
      return error.what();
    }
    return "(no failure)";
  }
  Communicator world_ = Communicator::world();
};

TEST_F(NcclFaults, StartsNonBlockingWithOneIdAndReproducibleSettings) {
  {
    const auto group = make_nccl_process_group(world_, world_.rank());
    EXPECT_TRUE(pretended_gpu.id_arrived);
    EXPECT_TRUE(pretended_gpu.non_blocking);
    EXPECT_EQ(pretended_gpu.algorithm, "Ring");
    EXPECT_EQ(pretended_gpu.questions, 9);  // its start, what is split off from it, its end
    EXPECT_EQ(pretended_gpu.destroyed, 1);
    EXPECT_EQ(group->tp_size(), world_.size());
    EXPECT_EQ(group->tp_rank(), world_.rank());
    pretended_gpu.stream_busy = 10;
    group->barrier();
    EXPECT_LT(pretended_gpu.stream_busy, 0);
    EXPECT_EQ(pretended_gpu.calls_without_blocking, 0) << "NCCL starts a thread for each of these";
  }
  EXPECT_EQ(pretended_gpu.aborts, 1);  // as after a fault: its end is local
}

TEST_F(NcclFaults, AGroupThatIsClosedEndsInOrder) {
  {
    const auto group = make_nccl_process_group(world_, world_.rank());
    group->barrier();
    group->close();
    EXPECT_SAYS(failure_of(*group), "has failed before");  // nothing more is asked of it
  }
  EXPECT_EQ(pretended_gpu.aborts, 0);
  EXPECT_EQ(pretended_gpu.finalized, 2);
  EXPECT_EQ(pretended_gpu.destroyed, 2);
}

// A peer that is gone, seen from within a call that blocks.
TEST_F(NcclFaults, ACallThatDoesNotReturnIsAborted) {
  setenv("MAGISTER_NCCL_TIMEOUT_SECONDS", "2", 1);
  const auto one = make_nccl_process_group(world_, world_.rank());
  pretended_gpu.call_hangs = true;
  EXPECT_SAYS(failure_of(*one), "no answer for 2.0 s");
  EXPECT_EQ(pretended_gpu.aborts, 1);
  pretended_gpu.call_hangs = false;
  EXPECT_SAYS(failure_of(*one), "has failed before");
  pretended_gpu.aborts = 0;
  {
    const auto two = make_nccl_process_group(world_, world_.rank());
    pretended_gpu.call_hangs = true;
    two->close();  // the others never come: a warning, for the work is done
    EXPECT_EQ(pretended_gpu.aborts, 1);
    pretended_gpu.call_hangs = false;
  }
  EXPECT_EQ(pretended_gpu.aborts, 1);
}

// The caller that makes a model's partial sums requests it: a fast group sends bf16 as bf16.
TEST_F(NcclFaults, AFastGroupSaysSo) {
  EXPECT_EQ(make_nccl_process_group(world_, world_.rank())->backend(), "nccl");
  EXPECT_EQ(make_nccl_process_group(world_, world_.rank(), /*fast=*/true)->backend(), "nccl, fast");
}

TEST_F(NcclFaults, TheUsersEnvironmentWins) {
  setenv("NCCL_ALGO", "Tree", 1);
  make_nccl_process_group(world_, world_.rank());
  EXPECT_EQ(pretended_gpu.algorithm, "Tree");
  unsetenv("NCCL_ALGO");
}

// A sum in two steps has few blocks: on a stream like the others they would wait until a product's last one has begun.
TEST_F(NcclFaults, SumsInTwoStepsGoBeforeOtherKernels) {
  const auto group = make_nccl_process_group(world_, world_.rank());
  EXPECT_EQ(pretended_gpu.stream_priority, 0) << "no stream yet";
  float numbers[4] = {1, 2, 3, 4};
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(world_.rank()));
  at::Tensor tensor = at::for_blob(numbers, {4}).target_device(device).options(device).make_tensor();
  const int before = pretended_gpu.collectives;
  group->begin_all_reduce_sum(tensor);
  EXPECT_EQ(pretended_gpu.collectives, before + 1);
  EXPECT_EQ(pretended_gpu.stream_priority, -5) << "the device's highest";
  group->finish_all_reduce_sum(tensor);
}

TEST_F(NcclFaults, ALostPeerAbortsTheGroupForGood) {
  const auto group = make_nccl_process_group(world_, world_.rank());
  pretended_gpu.stream_busy = 1 << 30;
  pretended_gpu.peer_lost = true;
  const std::string text = failure_of(*group);
  EXPECT_SAYS(text, "remote process exited");
  EXPECT_SAYS(text, host_name());
  EXPECT_SAYS(text, "shard " + std::to_string(world_.rank()) + " of 2 on cuda:" + std::to_string(world_.rank()));
  EXPECT_SAYS(text, "net.cc:12 peer\\x0Awent away");
  EXPECT_EQ(pretended_gpu.aborts, 1);
  EXPECT_SAYS(failure_of(*group), "has failed before");
}

TEST_F(NcclFaults, APeerThatDoesNotComeIsWaitedForOnlySoLong) {
  setenv("MAGISTER_NCCL_TIMEOUT_SECONDS", "2", 1);
  const auto hasty = make_nccl_process_group(world_, world_.rank());
  pretended_gpu.stream_busy = 1 << 30;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_SAYS(failure_of(*hasty), "no answer for 2.0 s");
  const auto taken = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(taken, std::chrono::seconds(2));
  EXPECT_LT(taken, std::chrono::seconds(60));
  setenv("MAGISTER_NCCL_TIMEOUT_SECONDS", "0.1", 1);
  pretended_gpu.questions_until_done = 1 << 30;  // a start that never gets under way
  EXPECT_THROW(make_nccl_process_group(world_, world_.rank()), Error);
}

TEST_F(NcclFaults, TwoGpusOfARankAreShardsOfOneGroup) {
  auto groups = make_nccl_process_groups(world_, {0, 1});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(pretended_gpu.communicators, 2);
  std::vector<std::int64_t> heard(2);
  run_side_by_side(2, [&](std::size_t i) {
    const int shard = 2 * world_.rank() + static_cast<int>(i);
    EXPECT_EQ(groups[i]->tp_rank(), shard);
    EXPECT_EQ(groups[i]->tp_size(), 4);
    EXPECT_EQ(groups[i]->device().index(), static_cast<int>(i));
    heard[i] = groups[i]->broadcast_number(10 + shard, 3);
    groups[i]->barrier();
    groups[i]->close();
  });
  EXPECT_EQ(heard, (std::vector<std::int64_t>{13, 13}));
  EXPECT_EQ(pretended_gpu.aborts, 0);
  EXPECT_THROW(make_nccl_process_groups(world_, {0, 2}), Error);
}

// Its part of the sum never arrives: the thread that waits for the device leaves at once, and the error is that of the
// failed thread.
TEST_F(NcclFaults, AGpuWhoseThreadFailsReleasesTheOthersOfItsRank) {
  auto groups = make_nccl_process_groups(world_.split(world_.rank(), 0), {0, 1});
  pretended_gpu.stream_busy = 1 << 30;
  std::string text;
  try {
    run_side_by_side(2, [&](std::size_t i) {
      const auto mine = std::move(groups[i]);
      if (i == 1) fail(ExitCode::kData, "a bad record");
      mine->barrier();
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "a bad record");
  EXPECT_EQ(pretended_gpu.aborts, 2);
}

// Messages between the ranks of a training have a stream of their own, and go both ways in one group.
class MessageFaults : public NcclFaults {
 protected:
  void SetUp() override {
    NcclFaults::SetUp();
    exchange_ = make_device_exchange(world_, gpu::Queue{world_.rank(), nullptr});
  }
  void TearDown() override {
    exchange_.reset();
    NcclFaults::TearDown();
  }
  std::unique_ptr<DeviceExchange> exchange_;
  float numbers_[4] = {1, 2, 3, 4};

  void pass() {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(world_.rank()));
    const at::Tensor all = at::for_blob(numbers_, {4}).target_device(device).options(device).make_tensor();
    const std::vector<DeviceMessage> messages = {{all, 1 - world_.rank(), true}, {all, 1 - world_.rank(), false}};
    exchange_->follow_default();
    exchange_->pass(messages);
  }
  std::string failure() {
    try {
      pass();
      exchange_->wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInternal);
      return error.what();
    }
    return "(no failure)";
  }
};

TEST_F(MessageFaults, MessagesAreQueuedInGroups) {
  EXPECT_EQ(pretended_gpu.messages, 2) << "the ranks are connected";
  EXPECT_EQ(pretended_gpu.stream_priority, -5) << "the device's highest";
  pass();
  exchange_->pass({});
  EXPECT_EQ(pretended_gpu.groups, 2);
  EXPECT_EQ(pretended_gpu.messages, 4);
  EXPECT_EQ(pretended_gpu.messages_alone, 0);
  EXPECT_EQ(pretended_gpu.calls_without_blocking, 0) << "NCCL starts a thread for each of these";
  pretended_gpu.events_busy = 3;
  const std::uint64_t mark = exchange_->mark();
  EXPECT_FALSE(exchange_->reached(mark));
  exchange_->wait();
  EXPECT_TRUE(exchange_->reached(mark));
  exchange_->close();
  exchange_.reset();
  EXPECT_EQ(pretended_gpu.aborts, 0);
  EXPECT_EQ(pretended_gpu.finalized, 2);
}

TEST_F(MessageFaults, ALostPeerEndsThem) {
  pretended_gpu.events_busy = 1 << 30;
  pretended_gpu.peer_lost = true;
  EXPECT_SAYS(failure(), "remote process exited");
  EXPECT_EQ(pretended_gpu.aborts, 1);
  EXPECT_SAYS(failure(), "has failed before");
}

TEST_F(MessageFaults, APeerThatDoesNotComeIsWaitedForOnlySoLong) {
  exchange_->close();
  setenv("MAGISTER_NCCL_TIMEOUT_SECONDS", "1", 1);
  exchange_ = make_device_exchange(world_, gpu::Queue{world_.rank(), nullptr});
  pretended_gpu.events_busy = 1 << 30;
  EXPECT_SAYS(failure(), "no answer for 1.0 s");
  pretended_gpu.events_busy = 0;
  exchange_ = make_device_exchange(world_, gpu::Queue{world_.rank(), nullptr});
  pretended_gpu.aborts = 0;
  pretended_gpu.call_hangs = true;
  EXPECT_SAYS(failure(), "ncclSend and ncclRecv failed: no answer for 1.0 s");
  pretended_gpu.call_hangs = false;
}

TEST_F(MessageFaults, FailuresOfCallsAndStreamsAreSaid) {
  pretended_gpu.stream_fails = true;
  EXPECT_SAYS(failure(), "an illegal memory access");
  pretended_gpu.stream_fails = false;
  exchange_ = make_device_exchange(world_, gpu::Queue{world_.rank(), nullptr});
  pretended_gpu.fail_at_once = true;
  EXPECT_SAYS(failure(), "ncclSend and ncclRecv failed: invalid usage");
}

TEST_F(NcclFaults, FailuresOfCallsAndStreamsAreSaid) {
  const auto one = make_nccl_process_group(world_, world_.rank());
  const auto two = make_nccl_process_group(world_, world_.rank());
  pretended_gpu.fail_at_once = true;
  EXPECT_SAYS(failure_of(*one), "ncclAllReduce (barrier) failed: invalid usage");
  pretended_gpu.fail_at_once = false;
  pretended_gpu.stream_fails = true;
  EXPECT_SAYS(failure_of(*two), "an illegal memory access");
}

TEST_F(NcclFaults, AStartThatFailsOnOneRankIsRefusedOnAll) {
  pretended_gpu.no_unique_id = world_.rank() == 0;
  EXPECT_THROW(make_nccl_process_group(world_, world_.rank()), Error);
  pretended_gpu.no_unique_id = false;
  EXPECT_THROW(make_nccl_process_group(world_, world_.rank() == 1 ? 2 : 0), Error);
  EXPECT_EQ(pretended_gpu.collectives, 0);  // NCCL was not entered
  pretended_gpu.fail_at_once = true;
  EXPECT_THROW(make_nccl_process_group(world_, world_.rank()), Error);
}

}  // namespace nccl_faults_test
}  // namespace magister
