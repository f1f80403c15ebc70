// Stamps in a build without CUDA: record() throws, because there is no stream.
#include "magister/core/error.h"
#include "magister/device/gpu_stamp.h"

namespace magister {

GpuStamp GpuStamp::record() {
  fail(ExitCode::kConfig, "this build has no CUDA (a GPU's time cannot be read); build with MAGISTER_CUDA=ON");
}
GpuStamp::~GpuStamp() = default;
double GpuStamp::milliseconds_since(const GpuStamp&) const { return 0; }

}  // namespace magister
