// See model_host.h.
#include "magister/runtime/model_host.h"

#include <memory>

#include "magister/device/upload.h"

namespace magister {
namespace {

std::unique_ptr<ProcessGroup> group_for(const OpenModel& source) {
  const bool on_gpu = source.gpu && !source.gpu->on_host();
  return on_gpu ? make_single_process_group(device_of(*source.gpu)) : make_single_process_group();
}

}  // namespace

ModelHost::ModelHost(const OpenModel& source, int num_threads, const LoadHook& heartbeat, const GeneratorSetup& setup,
                     bool self_test)
    : instance_(source, group_for(source), num_threads,
                {.heartbeat =
                     [heartbeat](const char*) {
                       if (heartbeat) heartbeat();
                     },
                 .stop_wanted = [] { return false; }}),
      generator_(instance_.load(self_test), setup.limits, setup.sampling, setup.seed, setup.stop) {}

}  // namespace magister
