// Device memory that other devices write to, from this process or another; for a host queue it is ordinary memory of
// this process. The functions in the lower half are CUDA's part and, except device_is_idle(), throw in a build without
// CUDA. Source: CUDA runtime API, "Peer Device Memory Access", "Interprocess Communication".
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "magister/device/launch.h"

namespace magister::peer_memory {

using Bytes = std::shared_ptr<std::byte>;    // freed by the last owner
using Handle = std::array<std::int64_t, 8>;  // from which another process opens the memory

// Allocates zeroed memory, 16-byte aligned, on the queue's device. Throws Error.
Bytes make(const gpu::Queue& queue, std::size_t num_bytes);
// The same in host memory that every device of this process can access.
Bytes make_flags(const gpu::Queue& queue, std::size_t num_bytes);
// Identifies a device of the host for all processes; for a host queue it is a new number at each call.
std::int64_t number_of(const gpu::Queue& queue);
// Lets the queue's device access the memory of another device of this process. Throws Error if it cannot.
void reach(const gpu::Queue& queue, int other_device);
// Copies between host and device, after all work that was queued before.
void copy(const gpu::Queue& queue, void* to, const void* from, std::size_t num_bytes);
// Returns false if queued work is not done after this time.
bool wait_until_idle(const gpu::Queue& queue, std::chrono::milliseconds most) noexcept;

// handle_of(): a handle of make()'s device memory for another process, which must close the memory before it is freed.
// open() opens such memory in that process.
Handle handle_of(int device, const Bytes& bytes);
Bytes open(int device, const Handle& handle);

Bytes make_on_device(int device, std::size_t num_bytes);
Bytes make_pinned(std::size_t num_bytes);
std::int64_t bus_number(int device);
void reach_device(int device, int other_device);
void copy_on_device(int device, void* to, const void* from, std::size_t num_bytes);
bool device_is_idle(int device);

}  // namespace magister::peer_memory
