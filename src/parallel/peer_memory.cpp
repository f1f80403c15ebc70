// Dispatch of peer_memory.h to host or device, and the host's part.
#include "parallel/peer_memory.h"

#include <atomic>
#include <cstring>
#include <new>
#include <thread>

namespace magister::peer_memory {
namespace {

constexpr std::align_val_t kAlignment{64};

Bytes on_host(std::size_t num_bytes) {
  auto* const bytes = static_cast<std::byte*>(::operator new(num_bytes, kAlignment));
  std::memset(bytes, 0, num_bytes);
  return {bytes, [](std::byte* mine) { ::operator delete(mine, kAlignment); }};
}

}  // namespace

Bytes make(const gpu::Queue& queue, std::size_t num_bytes) {
  return queue.on_host() ? on_host(num_bytes) : make_on_device(queue.device, num_bytes);
}

Bytes make_flags(const gpu::Queue& queue, std::size_t num_bytes) {
  return queue.on_host() ? on_host(num_bytes) : make_pinned(num_bytes);
}

std::int64_t number_of(const gpu::Queue& queue) {
  static std::atomic<std::int64_t> played{0};
  return queue.on_host() ? ++played : bus_number(queue.device);
}

void reach(const gpu::Queue& queue, int other_device) {
  if (!queue.on_host()) reach_device(queue.device, other_device);
}

void copy(const gpu::Queue& queue, void* to, const void* from, std::size_t num_bytes) {
  if (!queue.on_host()) return copy_on_device(queue.device, to, from, num_bytes);
  std::memcpy(to, from, num_bytes);
}

bool wait_until_idle(const gpu::Queue& queue, std::chrono::milliseconds most) noexcept {
  if (queue.on_host()) return true;
  const auto begin = std::chrono::steady_clock::now();
  while (!device_is_idle(queue.device)) {
    if (std::chrono::steady_clock::now() - begin > most) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace magister::peer_memory
