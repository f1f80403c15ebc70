// The exchange between GPUs in a build without NCCL: it throws.
#include "magister/core/error.h"
#include "parallel/device_exchange_nccl.h"

namespace magister {

std::unique_ptr<DeviceExchange> make_nccl_exchange(const Communicator&, int device, bool) {
  fail(ExitCode::kConfig,
       "sums between the ranks' GPUs on cuda:{} in a build without NCCL (GPUs cannot communicate); configure with "
       "MAGISTER_CUDA=ON, or set layout.devices: cpu",
       device);
}

}  // namespace magister
