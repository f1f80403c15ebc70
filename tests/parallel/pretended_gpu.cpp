// A CUDA runtime and a NCCL of a few lines, linked before the real ones: two devices whose memory is the host's, and
// collectives over one rank's data that tests can make slow, failing or hanging. Calls are recorded. Other processes
// can open the memory, and the only kernel of this module runs on the host.
#include "parallel/pretended_gpu.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "magister/device/launch.h"
#include "parallel/gpu/peer_sum_kernel.h"

namespace magister {

PretendedGpu pretended_gpu;

}  // namespace magister

using magister::pretended_gpu;

struct ncclComm {
  int num_ranks;
  bool blocking;
};

namespace {

// A communicator that is being split off: it appears when its parent reports completion, to the thread that made it.
thread_local ncclComm** awaited = nullptr;
thread_local ncclComm* split_off = nullptr;
thread_local int questions_left = 0;

bool in_group = false;

// Threads of several devices count in one record.
std::recursive_mutex counting;

// A call in progress: "in progress" for a few questions, then its result. A call of a blocking communicator is complete
// when it returns.
ncclResult_t begin_call(const ncclComm* comm) {
  {
    const std::lock_guard lock(counting);
    ++pretended_gpu.collectives;
  }
  while (comm->blocking && pretended_gpu.call_hangs) {
    if (__atomic_load_n(&pretended_gpu.aborts, __ATOMIC_ACQUIRE) > 0) return ncclInternalError;
  }
  questions_left = 0;
  if (comm->blocking) return pretended_gpu.fail_at_once ? ncclInvalidUsage : ncclSuccess;
  questions_left = pretended_gpu.questions_until_done;
  if (pretended_gpu.fail_at_once) return ncclInvalidUsage;
  return questions_left == 0 ? ncclSuccess : ncclInProgress;
}

// A device's memory is a file without a name, which other processes find by its descriptor.
struct Memory {
  int process, file;
  std::size_t bytes;
};
std::map<void*, Memory> memories, opened;

void* map_of(const Memory& memory) {
  void* const place = ::mmap(nullptr, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file, 0);
  return place == MAP_FAILED ? nullptr : place;
}

std::size_t width(ncclDataType_t type) {
  return type == ncclFloat64 || type == ncclInt64 ? 8 : type == ncclFloat16 || type == ncclBfloat16 ? 2 : 4;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 2;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
// Compute capability 8: no kernel begins early.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 8;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const std::lock_guard lock(counting);
  const Memory memory{::getpid(), ::memfd_create("device", 0), bytes};
  if (::ftruncate(memory.file, static_cast<off_t>(bytes)) != 0) return cudaErrorMemoryAllocation;
  *pointer = map_of(memory);
  memories[*pointer] = memory;
  ++pretended_gpu.allocations;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(counting);
  --pretended_gpu.allocations;
  ::munmap(pointer, memories.at(pointer).bytes);
  ::close(memories.at(pointer).file);
  memories.erase(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  const std::lock_guard lock(counting);
  ++pretended_gpu.allocations;
  *pointer = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(counting);
  --pretended_gpu.allocations;
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  const std::lock_guard lock(counting);
  std::memcpy(handle, &memories.at(pointer), sizeof(Memory));
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
  const std::lock_guard lock(counting);
  Memory memory{};
  std::memcpy(&memory, &handle, sizeof memory);
  const std::string path = "/proc/" + std::to_string(memory.process) + "/fd/" + std::to_string(memory.file);
  memory.file = ::open(path.c_str(), O_RDWR);
  if (!pretended_gpu.handles_open || memory.file < 0) return cudaErrorMapBufferObjectFailed;
  *pointer = map_of(memory);
  opened[*pointer] = memory;
  ++pretended_gpu.opened;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  const std::lock_guard lock(counting);
  --pretended_gpu.opened;
  ::munmap(pointer, opened.at(pointer).bytes);
  ::close(opened.at(pointer).file);
  opened.erase(pointer);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02d:00.0", pretended_gpu.first_bus + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* works, int, int) {
  *works = pretended_gpu.devices_reach ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  const std::lock_guard lock(counting);
  return pretended_gpu.accesses++ < 2 ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
// There is one kernel that anybody starts here.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void** arguments) {
  {
    const std::lock_guard lock(counting);
    ++pretended_gpu.kernels;
  }
  const auto& kernel = *static_cast<const magister::gpu::PeerSum*>(arguments[0]);
  magister::gpu::start(kernel, magister::gpu::Queue{});
  if (pretended_gpu.sums_are_wrong) kernel.numbers[0] += 1;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = pretended_gpu.free_bytes;
  *total = 100'000;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  if (pretended_gpu.stream_fails) return cudaErrorIllegalAddress;
  return pretended_gpu.stream_busy-- > 0 ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  pretended_gpu.stream_priority = priority;
  *stream = reinterpret_cast<cudaStream_t>(&pretended_gpu);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(&pretended_gpu);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) {
  if (pretended_gpu.stream_fails) return cudaErrorIllegalAddress;
  return pretended_gpu.events_busy-- > 0 ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "an illegal memory access" : "ok";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return pretended_gpu.no_unique_id ? ncclSystemError : ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int, ncclConfig_t* config) {
  const std::lock_guard lock(counting);
  pretended_gpu.id_arrived = id.internal[100] == 7;
  pretended_gpu.non_blocking = config->blocking == 0;
  const char* const algorithm = std::getenv("NCCL_ALGO");
  pretended_gpu.algorithm = algorithm == nullptr ? "" : algorithm;
  *comm = new ncclComm{num_ranks, config->blocking != 0};
  ++pretended_gpu.communicators;
  return begin_call(*comm);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* split, ncclConfig_t* config) {
  const std::lock_guard lock(counting);
  split_off = new ncclComm{comm->num_ranks, config->blocking != 0};
  ++pretended_gpu.communicators;
  *split = nullptr;
  awaited = split;
  return begin_call(comm);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  {
    const std::lock_guard lock(counting);
    ++pretended_gpu.finalized;
  }
  return begin_call(comm);  // which may hang until another thread aborts
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(counting);
  ++pretended_gpu.destroyed;
  --pretended_gpu.communicators;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  const std::lock_guard lock(counting);
  ++pretended_gpu.questions;
  *result = ncclSuccess;
  if (pretended_gpu.peer_lost)
    *result = ncclRemoteError;
  else if (questions_left > 0 && --questions_left > 0)
    *result = ncclInProgress;
  if (*result == ncclSuccess && awaited != nullptr) *std::exchange(awaited, nullptr) = split_off;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(counting);
  --pretended_gpu.communicators;
  if (std::exchange(awaited, nullptr) != nullptr) {
    --pretended_gpu.communicators;
    delete split_off;
  }
  __atomic_fetch_add(&pretended_gpu.aborts, 1, __ATOMIC_RELEASE);
  delete comm;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError    ? "remote process exited"
         : result == ncclInvalidUsage ? "invalid usage"
                                      : "system error";
}
const char* ncclGetLastError(ncclComm_t) { return "net.cc:12 peer\nwent away"; }

// Every rank gives the same data, so a sum is a product with the number of ranks.
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t) {
  pretended_gpu.calls_without_blocking += comm->blocking ? 0 : 1;
  if (type == ncclFloat32) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] * static_cast<float>(comm->num_ranks);
  }
  return begin_call(comm);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t) {
  for (int r = 0; r < comm->num_ranks; ++r)
    std::memcpy(static_cast<char*>(to) + static_cast<std::size_t>(r) * count * width(type), from, count * width(type));
  return begin_call(comm);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(from, to, count, type, op, comm, stream);
}
ncclResult_t ncclBroadcast(const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return begin_call(comm);
}

ncclResult_t ncclGroupStart() {
  in_group = true;
  ++pretended_gpu.groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  ++pretended_gpu.messages;
  pretended_gpu.messages_alone += in_group ? 0 : 1;
  pretended_gpu.calls_without_blocking += comm->blocking ? 0 : 1;
  return begin_call(comm);
}
ncclResult_t ncclRecv(void*, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return ncclSend(nullptr, count, type, peer, comm, stream);
}

}  // extern "C"
