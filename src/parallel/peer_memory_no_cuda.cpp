// The device part of peer_memory.h in a build without CUDA: there are no devices.
#include "magister/core/error.h"
#include "parallel/peer_memory.h"

namespace magister::peer_memory {
namespace {

[[noreturn]] void refuse() {
  fail(ExitCode::kInternal, "memory of a GPU in a build without CUDA (there is no device for it); report this");
}

}  // namespace

Bytes make_on_device(int, std::size_t) { refuse(); }
Bytes make_pinned(std::size_t) { refuse(); }
std::int64_t bus_number(int) { refuse(); }
void reach_device(int, int) { refuse(); }
void copy_on_device(int, void*, const void*, std::size_t) { refuse(); }
bool device_is_idle(int) { return true; }
Handle handle_of(int, const Bytes&) { refuse(); }
Bytes open(int, const Handle&) { refuse(); }

}  // namespace magister::peer_memory
