// main() of tests that need a GPU: without one they say so and end with 77, which CTest counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "gpu/gpu_under_test.h"
#include "magister/device/gpu.h"
#include "magister/parallel/layout.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!magister::gpu::host_plays_gpu()) {
    if (magister::discover_gpus().empty()) {
      std::puts("skipped: no GPU");
      return 77;
    }
    magister::open_gpu(0);
  }
  return RUN_ALL_TESTS();
}
