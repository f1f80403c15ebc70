// HostThread: a thread of a kernel on the CPU. The threads of a block are fibers of one CPU thread that switch at
// barriers and shuffles, so a kernel runs step by step as on a GPU. Errors that a GPU hides are reported: a barrier
// that some threads never reach, and writes beyond the end of shared memory. Shared memory starts as NaN, so reading it
// before writing shows in the result. It is slow: for tests, and for running the GPU path of the model without a GPU,
// never for real work.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "magister/device/device_code.h"

namespace magister::gpu {

class HostBlock;

class HostThread {
 public:
  HostThread(HostBlock& block, int thread) : block_(block), thread_(thread) {}

  int thread() const { return thread_; }
  int num_threads() const;
  int lane() const { return thread_ % kWarp; }
  int warp() const { return thread_ / kWarp; }
  int num_warps() const { return num_threads() / kWarp; }
  std::int64_t block_x() const;
  std::int64_t block_y() const;
  std::int64_t block_z() const;

  void sync();
  void sync_warp();
  template <typename T>
  T shuffle_xor(T value, int mask) {
    return shuffle(value, lane() ^ mask);
  }
  template <typename T>
  T shuffle(T value, int lane) {
    static_assert(sizeof(T) <= kSlotBytes);
    half_ ^= 1;  // this half is reused only after a barrier in the other half, which all lanes pass after reading here
    std::memcpy(slot(this->lane()), &value, sizeof value);
    sync_warp();
    T other;
    std::memcpy(&other, slot(lane), sizeof other);
    return other;
  }
  unsigned char* shared();
  // The copy is made as late as a GPU may make it, in wait_for_copies(), so a thread that does not wait reads the old
  // bytes.
  void copy_16(void* to_shared, const void* global, bool there) { copies_.push_back({to_shared, global, there}); }
  void end_copies() { groups_.push_back(std::exchange(copies_, {})); }
  template <int kLeft>
  void wait_for_copies() {
    for (; groups_.size() > kLeft; groups_.erase(groups_.begin())) {
      for (const Copy& copy : groups_.front())
        *static_cast<Words4*>(copy.to) = copy.there ? load_16(copy.from) : Words4{};
    }
  }
  // Reads the first and the last byte, so that a sanitizer notices what is asked for beyond a tensor.
  void ask_for(const void* global, int bytes);
  void wait_for_earlier() { has_waited_ = true; }
  void let_next_begin() {}
  bool has_waited() const { return has_waited_; }
  void store_release(std::uint32_t* word, std::uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
  std::uint32_t load_acquire(const std::uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
  Words4 load_16_now(const void* global) { return load_16(global); }
  void pause();  // lets the CPU thread sleep, and with it the whole block
  std::uint64_t nanoseconds();
  int add_shared(int* counter, int value) { return std::exchange(*counter, *counter + value); }
  std::uint64_t add_shared(std::uint64_t* sum, std::uint64_t value) { return std::exchange(*sum, *sum + value); }
  // Fragments of a lane for m16n8k16, in the layout of device_code.h.
  void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

 private:
  friend class HostBlock;
  static constexpr std::size_t kSlotBytes = 32;
  unsigned char* slot(int lane);

  struct Copy {
    void* to;
    const void* from;
    bool there;
  };

  HostBlock& block_;
  int thread_;
  int half_ = 0;  // which half of the slots is in use
  bool has_waited_ = false;
  std::vector<Copy> copies_;
  std::vector<std::vector<Copy>> groups_;  // a few; a std::deque would allocate in every thread
};

// The order in which the fibers of a block are resumed. A kernel without a race gives the same result for both orders;
// tests run both.
enum class HostOrder { kAscending, kDescending };
void set_host_order(HostOrder order);

// Kernels with their arguments, in the order of queueing.
using HostKernels = std::vector<std::function<void()>>;
// Records the kernels that this thread queues on the host during queue_all(); none of them runs.
HostKernels record_on_host(const std::function<void()>& queue_all);
// The list that this thread is recording, or nullptr.
HostKernels* host_recording();

// Runs the blocks of the launch one after another. Throws Error(kInternal) with the number of the block if its threads
// wait for each other for ever or write beyond their shared memory.
void run_on_host(const LaunchShape& shape, const std::function<void(HostThread&)>& kernel);

}  // namespace magister::gpu
