// libtorch's GPU libraries, loaded into a process that was linked without them and has used ATen on the CPU: afterwards
// ATen has CUDA, and reports that there is no GPU if there is none.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/parallel/layout.h"

namespace magister {
namespace gpu_libraries_test {

TEST(GpuLibraries, LoadAfterWorkOnTheCpu) {
  const at::Tensor sum = at::mm(at::ones({3, 4}), at::ones({4, 3}));
  EXPECT_EQ(sum.sum().item<float>(), 36.0f);
  load_gpu_libraries();
  load_gpu_libraries();
  EXPECT_GE(at::detail::getCUDAHooks().versionCUDART(), 12000);
  EXPECT_FALSE(at::globalContext().allowBF16ReductionCuBLAS() ==
               at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
  // The ATen operations that the model uses on a GPU, by name and overload.
  const std::pair<const char*, const char*> operations[] = {{"aten::mm", "out"},
                                                            {"aten::mm", "dtype"},
                                                            {"aten::_scaled_mm", ""},
                                                            {"aten::_flash_attention_forward", ""},
                                                            {"aten::index_select", ""}};
  for (const auto& [name, overload] : operations) {
    const auto operation = c10::Dispatcher::singleton().findSchema({name, overload});
    ASSERT_TRUE(operation.has_value()) << name << "." << overload;
    EXPECT_TRUE(operation->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) << name << "." << overload;
  }
  const auto on_gpu = at::TensorOptions().device(at::kCUDA, 0);
  if (discover_gpus().empty()) {
    try {
      at::empty({2}, on_gpu);
      FAIL() << "a tensor on a GPU that is not there";
    } catch (const c10::Error& error) {
      EXPECT_EQ(std::string(error.what()).find("not linked with support"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("not available for this backend"), std::string::npos) << error.what();
    }
    EXPECT_THROW(open_gpu(0), Error);
    return;
  }
  open_gpu(0);
  EXPECT_EQ(at::ones({2}, on_gpu).sum().item<float>(), 2.0f);
  EXPECT_GT(gpu_memory(0).free_bytes, 0u);
}

}  // namespace gpu_libraries_test
}  // namespace magister
