// Memory of a device that other devices write to, from this process or another; on a host queue plain memory of this process. The second half is
// CUDA's part, which throws in a build without it. Source: CUDA runtime API, "Peer Device Memory Access", "Interprocess Communication".
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "magister/device/launch.h"

namespace magister::peer_memory {

using Bytes = std::shared_ptr<std::byte>;    // freed with its last owner
using Handle = std::array<std::int64_t, 8>;  // what another process opens

// Zeros, 16-byte aligned, on the queue's device. Throws Error.
Bytes make(const gpu::Queue& queue, std::size_t num_bytes);
// The same on the host, where every device of this process sees them.
Bytes make_flags(const gpu::Queue& queue, std::size_t num_bytes);
// Which device of its host it is, whatever a process calls it; of host queues a new number each time.
std::int64_t number_of(const gpu::Queue& queue);
// The queue's device may read and write the memory of another one of this process. Throws Error where it cannot.
void reach(const gpu::Queue& queue, int other_device);
// Between the host and the device, when what was queued before is done.
void copy(const gpu::Queue& queue, void* to, const void* from, std::size_t num_bytes);
// False where what is queued is not done after so long.
bool wait_until_idle(const gpu::Queue& queue, std::chrono::milliseconds most) noexcept;

// Of make()'s memory on a device, for another process, which must have let go of it before it is freed; and what that process opens.
Handle handle_of(int device, const Bytes& bytes);
Bytes open(int device, const Handle& handle);

Bytes make_on_device(int device, std::size_t num_bytes);
Bytes make_pinned(std::size_t num_bytes);
std::int64_t bus_number(int device);
void reach_device(int device, int other_device);
void copy_on_device(int device, void* to, const void* from, std::size_t num_bytes);
bool device_is_idle(int device);

}  // namespace magister::peer_memory
