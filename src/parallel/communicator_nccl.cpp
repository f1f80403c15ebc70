// Start, end and failures of a NCCL communicator.
#include "parallel/communicator_nccl.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "parallel/patience.h"

namespace magister {
namespace {

// The reason why this rank cannot join the group, or "".
std::string obstacle(const std::vector<int>& devices) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("the CUDA runtime says: {}", cudaGetErrorString(code));
  }
  for (const int device : devices) {
    if (device < 0 || device >= count) return fmt::format("{} GPUs are visible", count);
  }
  return "";
}

std::string describe_devices(const std::vector<int>& devices) {
  return fmt::format("cuda:{}", fmt::join(devices, ", cuda:"));
}

}  // namespace

void set_reproducible_defaults() {
  setenv("NCCL_ALGO", "Ring", 0);
  setenv("NCCL_PROTO", "Simple", 0);
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

ncclUniqueId agreed_nccl_id(const Communicator& members, const std::vector<int>& devices) {
  std::string problem = obstacle(devices);
  ncclUniqueId id{};
  if (problem.empty() && members.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) problem = fmt::format("ncclGetUniqueId: {}", ncclGetErrorString(result));
  }
  const std::vector<std::string> problems = members.all_gather(problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    MAGISTER_CHECK(
        problems[rank].empty(), ExitCode::kConfig,
        "rank {} of {} of a group cannot use its GPUs (this rank's: {}): {} (the group is not whole without it); check "
        "`magister doctor`, or set layout.devices: cpu",
        rank, problems.size(), describe_devices(devices), problems[rank]);
  }
  members.broadcast(&id, sizeof id, 0);
  return id;
}

NcclCommunicator::NcclCommunicator(const Place& place, const ncclUniqueId& id, int channels)
    : place_(place),
      patience_(group_patience()),
      watchdog_(std::chrono::duration_cast<std::chrono::milliseconds>(patience_), false, [this](const std::string&) {
        const std::lock_guard lock(mutex_);
        if (!calling_) return;
        stalled_ = true;
        ncclCommAbort(comm_);  // makes the call return
      }) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (channels > 0) config.minCTAs = config.maxCTAs = channels;
  try {
    settle(ncclCommInitRankConfig(&comm_, place_.size, id, place_.rank, &config), "ncclCommInitRankConfig");
    let_calls_block(config);
  } catch (...) {
    abort();
    throw;
  }
}

// Replaces the communicator by one whose calls block. NCCL cannot switch an existing one, so a communicator of the same
// members is split off and the first one is destroyed.
void NcclCommunicator::let_calls_block(ncclConfig_t config) {
  config.blocking = 1;
  ncclComm_t blocking = nullptr;
  const ncclResult_t begun = ncclCommSplit(comm_, 0, place_.rank, &blocking, &config);
  settle(begun == ncclSuccess ? ncclInProgress : begun,
         "ncclCommSplit");  // `blocking` is set when comm_ has completed the split
  if (blocking == nullptr) abort_and_fail("ncclCommSplit", "no communicator came of it");
  try {
    settle(ncclCommFinalize(comm_), "ncclCommFinalize");
  } catch (...) {
    ncclCommAbort(blocking);
    throw;
  }
  ncclCommDestroy(std::exchange(comm_, blocking));
}

void NcclCommunicator::check_not_failed() const {
  MAGISTER_CHECK(comm_ != nullptr, ExitCode::kInternal,
                 "shard {} of {}: the GPU group has failed before (its sums are lost); see the first message",
                 place_.rank, place_.size);
}

void NcclCommunicator::enter(const char* name) {
  check_not_failed();
  {
    const std::lock_guard lock(mutex_);
    calling_ = true;
  }
  watchdog_.enter(name);
}

void NcclCommunicator::leave(const char* name) {
  watchdog_.leave();
  {
    const std::lock_guard lock(mutex_);
    calling_ = false;
    if (stalled_) comm_ = nullptr;  // the watchdog has aborted the communicator
  }
  if (comm_ == nullptr) abort_and_fail(name, no_answer());
}

// Waits until a non-blocking call is in flight (not until its result is ready).
void NcclCommunicator::settle(ncclResult_t result, const char* name) {
  const auto begin = Clock::now();
  while (result == ncclInProgress) {
    pause_within(begin, name);
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result != ncclSuccess) abort_and_fail(name, ncclGetErrorString(result));
}

void NcclCommunicator::check_peers() {
  check_not_failed();
  ncclResult_t result = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess || (result != ncclSuccess && result != ncclInProgress)) {
    abort_and_fail("the group's collectives", ncclGetErrorString(result));
  }
}

void NcclCommunicator::pause_within(Clock::time_point begin, const char* name) {
  if (Clock::now() - begin > patience_) abort_and_fail(name, no_answer());
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

std::string NcclCommunicator::no_answer() const {
  return fmt::format("no answer for {:.1f} s", std::chrono::duration<double>(patience_).count());
}

void NcclCommunicator::close() noexcept {
  if (comm_ == nullptr) return;
  try {
    call("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
    ncclCommDestroy(std::exchange(comm_, nullptr));
  } catch (const std::exception& error) {
    log_warning("the GPU group did not end in order (its work is done): {}", error.what());
  }
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::abort_and_fail(const char* call, const std::string& problem) {
  const char* detail = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
  const std::string more = detail == nullptr || *detail == '\0' ? "" : ", " + printable(detail, 1000);
  abort();
  fail(ExitCode::kInternal,
       "rank {} on {}, shard {} of {} on cuda:{}: {} failed: {}{} (the GPUs cannot communicate any more); run the same "
       "command again, with NCCL_DEBUG=INFO if it comes back",
       log_world_rank(), host_name(), place_.rank, place_.size, place_.device, call, problem, more);
}

}  // namespace magister
