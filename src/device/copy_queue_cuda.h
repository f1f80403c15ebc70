// The copies of a GPU; in a build without CUDA it throws.
#pragma once

#include <memory>

#include "magister/device/copy_queue.h"

namespace magister {

// device: CUDA runtime index. Throws Error(kConfig) in a build without CUDA. Local.
std::unique_ptr<CopyQueue> make_cuda_copy_queue(int device);

}  // namespace magister
