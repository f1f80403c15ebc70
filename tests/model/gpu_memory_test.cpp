// The free memory of a GPU, and that a model leaves nothing in its allocator's reserve: with a simulated CUDA runtime
// and an allocator of a few lines. Also the memory of passes against the plan: counted byte by byte on the host.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "magister/device/gpu.h"
#include "magister/parallel/layout.h"
#include "model/gpu/gpu_backend.h"
#include "model/planned_pass.h"
#include "parallel/pretended_gpu.h"

namespace magister {
namespace gpu_memory_test {

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
  const gpu::Queue there{0, nullptr};
  const auto of = [&](const gpu::Queue& queue) {
    gpu::GpuWeights weights = gpu::GpuWeights::empty(config, *group, at::kBFloat16, queue);
    weights.layers.emplace_back().shape = shape_of(config, weights.partition, 0);
    return std::make_shared<const gpu::GpuWeights>(std::move(weights));
  };
  {
    const gpu::GpuBackend on_host(of(gpu::Queue{}), *group, gpu::Queue{});
  }
  EXPECT_EQ(allocator_->emptied, 0);
  {
    const gpu::GpuBackend on_gpu(of(there), *group, there);
  }
  EXPECT_EQ(allocator_->emptied, 1);
  allocator_->fails = true;  // after a fault of the device: a warning
  {
    const gpu::GpuBackend on_gpu(of(there), *group, there);
  }
  EXPECT_EQ(allocator_->emptied, 2);
}

ModelConfig config_of(std::int64_t heads, std::int64_t head_dim, std::int64_t intermediate_size) {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = heads * head_dim;
  config.num_hidden_layers = 1;
  config.num_attention_heads = heads;
  config.num_key_value_heads = heads / 2;
  config.head_dim = head_dim;
  config.vocab_size = 96;
  config.intermediate_size = intermediate_size;
  config.max_position_embeddings = 1024;
  return config;
}

// A quantised model's loss is found with the head of the plain one, which is gone by then.
TEST(GpuBackendsHead, KeepsNoLayerOfItsModel) {
  const auto group = make_single_process_group();
  gpu::GpuWeights made = gpu::GpuWeights::empty(config_of(2, 32, 96), *group, at::kBFloat16, gpu::Queue{});
  made.layers.emplace_back().shape = shape_of(made.config, made.partition, 0);
  made.head.fixed.chosen = 0;  // as where cuBLAS has an algorithm for it
  auto weights = std::make_shared<const gpu::GpuWeights>(std::move(made));
  const std::weak_ptr<const gpu::GpuWeights> watched = weights;
  auto model = std::make_unique<gpu::GpuBackend>(std::exchange(weights, nullptr), *group, gpu::Queue{});
  const LmHead head = model->lm_head();
  model.reset();
  EXPECT_TRUE(head.fixed != nullptr && head.fixed->defined());
  EXPECT_TRUE(watched.expired());
}

TEST(PlannedMemory, APassTakesNoMoreThanItsPlan) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    EXPECT_GE(use_of_a_tokens_plan(config_of(4, 64, 640), dtype, {128, 384}), 0.5)
        << "the plan asks for far more than is used";
  }
}

// Every number of rows and of keys that there is a place for, up to 384 keys.
TEST(PlannedMemory, DecodingTakesWhatIsPlanned) {
  const auto group = make_single_process_group();
  const ModelConfig config = config_of(2, 32, 96);
  for (const bool fp8 : {false, true}) {
    gpu::GpuWeights weights;
    weights.config = config;
    weights.partition = partition_for(config, 0, 1);
    weights.fp8 = fp8;
    weights.randomize({}, gpu::Queue{});
    weights.find_tile_sizes(gpu::Queue{});
    gpu::RopeOnDevice rope(weights);
    gpu::GpuDecoder decoder(weights, rope, *group, gpu::Queue{});
    KvCache cache;
    cache.num_pages = 8;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      cache.keys.push_back(at::zeros({9, 1, 48, 32}, at::kBFloat16));
      cache.values.push_back(at::zeros({9, 1, 48, 32}, at::kBFloat16));
    }
    const std::vector<std::int32_t> pages = {0, 1, 2, 3, 4, 5, 6, 7};
    for (const std::int64_t past : {383, 3}) {
      for (const std::size_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 65, 97, 129, 161, 193, 225}) {
        decoder.forward(std::vector<gpu::GpuDecoder::Row>(rows, {1, past, {pages.data(), 0}}), cache);
      }
    }
    // Norms and gates write 8-bit floats in their own pass: of a layer's four products only o_proj has rows to convert.
    const std::vector<gpu::GpuDecoder::Row> two(2, {1, 3, {pages.data(), 0}});
    decoder.use_graphs(false);
    const std::size_t kernels = gpu::record_on_host([&] { decoder.forward(two, cache); }).size();
    EXPECT_EQ(kernels, fp8 ? 2u + 6u + 1u + 4u + 2u : 2u + 4u + 4u)
        << "embeddings, last norm; two norms, rotation, attention, gate; products, and what joins the stream as f32; "
           "in "
           "bf16 rotation and gate are in their products";
    EXPECT_EQ(decoder.num_bytes(),
              gpu_decoding_bytes(config, weights.partition, 1, 384, fp8 ? at::kFloat8_e4m3fn : at::kBFloat16));
    EXPECT_EQ(gpu_decoding_bytes(config, weights.partition, 1, 384, at::kFloat), 0u) << "no kernels for it";
  }
}

}  // namespace gpu_memory_test
}  // namespace magister
