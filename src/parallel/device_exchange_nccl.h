// The exchange of ranks with a GPU each; in a build without NCCL it throws.
#pragma once

#include <memory>

#include "magister/parallel/device_exchange.h"

namespace magister {

// device: CUDA runtime index. fast: see make_device_exchange(). Throws Error(kConfig) if a device is missing.
// Collective over members.
std::unique_ptr<DeviceExchange> make_nccl_exchange(const Communicator& members, int device, bool fast);

}  // namespace magister
