// CUDA's part of peer_memory.h. Errors are thrown and cleared: if peer memory does not work, NCCL makes the sums.
#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <string_view>

#include "magister/core/error.h"
#include "parallel/peer_memory.h"

namespace magister::peer_memory {
namespace {

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) cudaGetLastError();
  MAGISTER_CHECK(code == cudaSuccess, ExitCode::kInternal, "{}: {}", call, cudaGetErrorString(code));
}

}  // namespace

Bytes make_on_device(int device, std::size_t num_bytes) {
  check(cudaSetDevice(device), "cudaSetDevice");
  void* memory = nullptr;
  check(cudaMalloc(&memory, num_bytes), "cudaMalloc");
  Bytes bytes(static_cast<std::byte*>(memory), [device](std::byte* mine) {
    int current = device;
    cudaGetDevice(&current);
    cudaSetDevice(device);
    cudaFree(mine);
    cudaSetDevice(current);  // restores the thread's device, which may be another one
  });
  check(cudaMemset(memory, 0, num_bytes), "cudaMemset");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // must be complete before a peer writes
  return bytes;
}

Bytes make_pinned(std::size_t num_bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, num_bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  std::memset(memory, 0, num_bytes);
  return {static_cast<std::byte*>(memory), [](std::byte* mine) { cudaFreeHost(mine); }};
}

std::int64_t bus_number(int device) {
  char id[32] = "";
  check(cudaDeviceGetPCIBusId(id, sizeof id, device), "cudaDeviceGetPCIBusId");
  return static_cast<std::int64_t>(std::hash<std::string_view>()(id));
}

void reach_device(int device, int other_device) {
  int works = 0;
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaDeviceCanAccessPeer(&works, device, other_device), "cudaDeviceCanAccessPeer");
  MAGISTER_CHECK(works != 0, ExitCode::kInternal, "cuda:{} does not reach the memory of cuda:{}", device, other_device);
  const cudaError_t code = cudaDeviceEnablePeerAccess(other_device, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  check(code, "cudaDeviceEnablePeerAccess");
}

void copy_on_device(int device, void* to, const void* from, std::size_t num_bytes) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMemcpy(to, from, num_bytes, cudaMemcpyDefault), "cudaMemcpy");
}

bool device_is_idle(int device) {
  if (cudaSetDevice(device) != cudaSuccess) return true;
  const cudaError_t code = cudaStreamQuery(nullptr);
  if (code != cudaSuccess) cudaGetLastError();  // otherwise ATen finds it after its next kernel
  return code != cudaErrorNotReady;             // a failed device does no further work
}

Handle handle_of(int device, const Bytes& bytes) {
  cudaIpcMemHandle_t handle{};
  static_assert(sizeof handle == sizeof(Handle));
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaIpcGetMemHandle(&handle, bytes.get()), "cudaIpcGetMemHandle");
  Handle words;
  std::memcpy(words.data(), &handle, sizeof handle);
  return words;
}

Bytes open(int device, const Handle& words) {
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, words.data(), sizeof handle);
  void* memory = nullptr;
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  return {static_cast<std::byte*>(memory), [device](std::byte* theirs) {
            cudaSetDevice(device);
            cudaIpcCloseMemHandle(theirs);
          }};
}

}  // namespace magister::peer_memory
