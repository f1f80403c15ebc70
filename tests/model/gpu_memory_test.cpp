// What counts as free on a GPU, and that a model leaves nothing behind in its allocator's reserve: over a pretended CUDA runtime and an
// allocator of a few lines.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "magister/device/gpu.h"
#include "magister/parallel/layout.h"
#include "model/gpu/gpu_backend.h"
#include "parallel/pretended_gpu.h"

namespace magister {
namespace {

class PretendedAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return used; }
  void emptyCache(c10::MempoolId_t) override {
    ++emptied;
    if (fails) throw std::runtime_error("an illegal memory access");
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    TORCH_CHECK(device == 0, "this process uses one device");
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = 3000;
    stats.reserved_bytes[0].current = 5000;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  bool used = true, fails = false;
  int emptied = 0;
};

class GpuMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    static PretendedAllocator only;
    allocator_ = &only;
    only.used = true;
    only.fails = false;
    only.emptied = 0;
    c10::SetAllocator(c10::DeviceType::CUDA, &only, 255);
    pretended_gpu = {};
    pretended_gpu.free_bytes = 70'000;
  }
  PretendedAllocator* allocator_ = nullptr;
};

TEST_F(GpuMemoryTest, WhatTheAllocatorKeepsInReserveIsFree) {
  EXPECT_EQ(gpu_memory(0).free_bytes, 72'000u);
  EXPECT_EQ(idle_gpu_bytes(0), 2000u);
  EXPECT_EQ(gpu_memory(1).free_bytes, 70'000u) << "a device that this process has not used";
  allocator_->used = false;
  EXPECT_EQ(gpu_memory(0).free_bytes, 70'000u) << "before anything was asked of the allocator";
}

TEST_F(GpuMemoryTest, AModelGivesBackWhatItHad) {
  ModelConfig config;
  config.hidden_size = 64;
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 4;
  config.head_dim = 16;
  config.vocab_size = 10;
  config.intermediate_size = 16;
  const auto group = make_single_process_group();
  {
    const gpu::GpuBackend on_host(config, *group, at::kBFloat16, gpu::Queue{});
  }
  EXPECT_EQ(allocator_->emptied, 0);
  {
    const gpu::GpuBackend on_gpu(config, *group, at::kBFloat16, gpu::Queue{0, nullptr});
  }
  EXPECT_EQ(allocator_->emptied, 1);
  allocator_->fails = true;  // after a fault of the device: a warning
  {
    const gpu::GpuBackend on_gpu(config, *group, at::kBFloat16, gpu::Queue{0, nullptr});
  }
  EXPECT_EQ(allocator_->emptied, 2);
}

}  // namespace
}  // namespace magister
