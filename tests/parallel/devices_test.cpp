// GPUs: found or not, quickly and in a consistent way; a GPU group where there is none is refused on every rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/process_group.h"

namespace magister {
namespace devices_test {

TEST(Devices, AreDescribedOrAbsent) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<GpuDevice> gpus = discover_gpus();
  if (gpus.empty()) {
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_EQ(gpus[i].index, static_cast<int>(i));
    EXPECT_EQ(gpus[i].uuid.size(), 40u) << gpus[i].uuid;
    EXPECT_GT(gpus[i].total_bytes, 0u);
    EXPECT_LE(gpus[i].free_bytes, gpus[i].total_bytes);
    EXPECT_GE(gpus[i].compute_capability, 50);
  }
  for (const std::string& version : {cuda_runtime_version(), cuda_driver_version(), nccl_version()}) {
    EXPECT_TRUE(version == "none" || version.find('.') != std::string::npos) << version;
  }
  if (!gpus.empty()) {
    EXPECT_NE(cuda_driver_version(), "none");
  }
}

TEST(Devices, AGroupOnAnAbsentGpuIsRefusedByAll) {
  const auto world = Communicator::world();
  try {
    make_nccl_process_group(world, 1000);
    FAIL() << "a group on cuda:1000";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("cuda:1000"), std::string::npos) << error.what();
  }
  EXPECT_EQ(world.sum(std::uint64_t{1}), static_cast<std::uint64_t>(world.size()));  // no rank hangs
}

// On a machine with a GPU: memory of the device, without torch's CUDA library.
TEST(Devices, AGroupOfOneGpuMeets) {
  const auto world = Communicator::world();
  const auto gpus = discover_gpus();
  if (gpus.size() < static_cast<std::size_t>(world.size())) GTEST_SKIP() << "needs a GPU a rank";
  const auto group = make_nccl_process_group(world, world.rank());
  group->barrier();
  EXPECT_EQ(group->backend(), "nccl");
}

}  // namespace devices_test
}  // namespace magister
