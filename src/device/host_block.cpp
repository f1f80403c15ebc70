// Fibers: one stack per thread of the block; they are resumed in turn until all have returned. swapcontext() is not
// used: with its two system calls per switch, a pass of a small model took minutes. Source: System V ABI for x86-64
// (callee-saved registers).
#include "magister/device/host_block.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "magister/core/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#endif

namespace magister::gpu {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr std::size_t kGuardBytes = 64;
constexpr unsigned char kFill = 0xff;  // NaN as f32 and as bf16, -1 as a whole number

// Saves the callee-saved registers on this stack and the stack pointer in *from, and continues where `to` was saved.
extern "C" void magister_switch_fiber(void** from, void* to);
asm(R"(
.text
.type magister_switch_fiber, @function
magister_switch_fiber:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size magister_switch_fiber, .-magister_switch_fiber
)");

std::atomic<HostOrder> host_order{HostOrder::kAscending};
thread_local HostKernels* recording = nullptr;

}  // namespace

struct Barrier {
  int expected = 0, arrived = 0;
  std::uint64_t generation = 0;
};

HostKernels* host_recording() { return recording; }

HostKernels record_on_host(const std::function<void()>& queue_all) {
  MAGISTER_ASSERT(recording == nullptr);
  HostKernels kernels;
  recording = &kernels;
  try {
    queue_all();
  } catch (...) {
    recording = nullptr;
    throw;
  }
  recording = nullptr;
  return kernels;
}

void set_host_order(HostOrder order) { host_order = order; }

class HostBlock {
 public:
  HostBlock(const LaunchShape& shape, const std::function<void(HostThread&)>& kernel)
      : shape_(shape),
        kernel_(kernel),
        shared_(shape.shared_bytes / 16 + 1 + kGuardBytes / 16),
        slots_(HostThread::kSlotBytes * 2 * shape.threads),
        accumulators_(shape.threads),
        fibers_(shape.threads),
        stacks_(std::make_unique_for_overwrite<unsigned char[]>(shape.threads * kStackBytes)) {
    MAGISTER_ASSERT(shape.threads % kWarp == 0 && shape.threads >= 32 && shape.threads <= 1024);
  }

  void run(std::int64_t x, std::int64_t y, std::int64_t z) {
    x_ = x, y_ = y, z_ = z;
    being_run = this;
    std::memset(shared_.data(), kFill, shared_.size() * 16);
    block_barrier_ = {static_cast<int>(shape_.threads)};
    warp_barriers_.assign(shape_.threads / kWarp, {kWarp});
    for (std::size_t i = 0; i < fibers_.size(); ++i) prepare(i);
    running_ = fibers_.size();
    is_ascending_ = host_order == HostOrder::kAscending;
    while (running_ > 0) {
      const std::uint64_t before = progress_;
      turn_ = 0;
      magister_switch_fiber(&scheduler_, next_in_round());
      MAGISTER_CHECK(
          progress_ != before || running_ == 0, ExitCode::kInternal,
          "block ({}, {}, {}) of a GPU kernel: {} of {} threads wait for ever (the others have returned or wait "
          "elsewhere); report this",
          x, y, z, running_, fibers_.size());
    }
    being_run = nullptr;
    check_guard();
  }

  // at_last runs in the last thread that arrives, before any thread continues.
  template <typename AtLast>
  void wait(Barrier& barrier, const AtLast& at_last) {
    const std::uint64_t generation = barrier.generation;
    if (++barrier.arrived == barrier.expected) {
      at_last();
      barrier.arrived = 0;
      ++barrier.generation;
      ++progress_;
      return;
    }
    while (barrier.generation == generation) {
      void** const here = &fibers_[current_].stack_pointer;
      magister_switch_fiber(here, next_in_round());
    }
  }
  void wait(Barrier& barrier) {
    wait(barrier, [] {});
  }

  const LaunchShape& shape_;
  const std::function<void(HostThread&)>& kernel_;
  std::vector<Words4> shared_;
  std::vector<unsigned char> slots_;  // [warps, 2, 32 lanes, kSlotBytes]: values that lanes exchange, in halves
  std::vector<float*> accumulators_;  // [threads]: pointers to the 4 sums of each lane in mma_bf16()
  Barrier block_barrier_;
  std::vector<Barrier> warp_barriers_;
  std::int64_t x_ = 0, y_ = 0, z_ = 0;

 private:
  struct Fiber {
    void* stack_pointer = nullptr;
    bool done = false;
  };

  // Where to continue: at the next thread of this round that has not returned, or in run() after the last one.
  void* next_in_round() {
    while (turn_ < fibers_.size()) {
      current_ = is_ascending_ ? turn_ : fibers_.size() - 1 - turn_;
      ++turn_;
      if (!fibers_[current_].done) return fibers_[current_].stack_pointer;
    }
    return scheduler_;
  }

  void prepare(std::size_t index) {
    Fiber& fiber = fibers_[index];
    fiber.done = false;
    // Clears the address sanitizer's marks that an earlier run left on this stack, because begin() never returned.
    ASAN_UNPOISON_MEMORY_REGION(stacks_.get() + index * kStackBytes, kStackBytes);
    // The first switch pops six registers and returns into begin(), whose frame starts 8 bytes off a multiple of 16.
    unsigned char* end = stacks_.get() + (index + 1) * kStackBytes;
    end -= reinterpret_cast<std::uintptr_t>(end) % 16;
    auto* top = reinterpret_cast<void**>(end) - 8;
    std::memset(static_cast<void*>(top), 0, 8 * sizeof(void*));
    top[6] = reinterpret_cast<void*>(&HostBlock::begin);
    fiber.stack_pointer = static_cast<void*>(top);
  }

  // The first frame of a fiber. It never returns, because the scheduler does not resume it after its last switch.
  static void begin() {
    HostBlock* block = being_run;
    const std::size_t index = block->current_;
    {
      HostThread thread(
          *block,
          static_cast<int>(index));  // destroyed before the last switch, after which no destructor of this frame runs
      block->kernel_(thread);
    }
    block->fibers_[index].done = true;
    --block->running_;
    ++block->progress_;
    magister_switch_fiber(&block->fibers_[index].stack_pointer, block->next_in_round());
  }

  void check_guard() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(shared_.data());
    for (std::size_t i = shape_.shared_bytes; i < shared_.size() * 16; ++i) {
      MAGISTER_CHECK(bytes[i] == kFill, ExitCode::kInternal,
                     "block ({}, {}, {}) of a GPU kernel wrote byte {} of its {} bytes of shared "
                     "memory (another block's numbers would be lost); report this",
                     x_, y_, z_, i, shape_.shared_bytes);
    }
  }

  std::vector<Fiber> fibers_;
  std::unique_ptr<unsigned char[]> stacks_;
  static thread_local HostBlock* being_run;
  void* scheduler_ = nullptr;
  std::size_t current_ = 0, turn_ = 0, running_ = 0;
  bool is_ascending_ = true;
  std::uint64_t progress_ = 0;
};

thread_local HostBlock* HostBlock::being_run = nullptr;

int HostThread::num_threads() const { return static_cast<int>(block_.shape_.threads); }
std::int64_t HostThread::block_x() const { return block_.x_; }
std::int64_t HostThread::block_y() const { return block_.y_; }
std::int64_t HostThread::block_z() const { return block_.z_; }
void HostThread::sync() { block_.wait(block_.block_barrier_); }
void HostThread::sync_warp() { block_.wait(block_.warp_barriers_[static_cast<std::size_t>(warp())]); }
// Sleeps, because threads that emulate other devices may need this core.
void HostThread::ask_for(const void* global, int bytes) {
  MAGISTER_ASSERT(bytes > 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(global) % 16 == 0);
  const auto* const ends = static_cast<const volatile unsigned char*>(global);
  static_cast<void>(ends[0]);
  static_cast<void>(ends[bytes - 1]);
}
void HostThread::pause() { std::this_thread::sleep_for(std::chrono::microseconds(1)); }
std::uint64_t HostThread::nanoseconds() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}
unsigned char* HostThread::shared() { return reinterpret_cast<unsigned char*>(block_.shared_.data()); }
unsigned char* HostThread::slot(int lane) {
  return block_.slots_.data() + ((warp() * 2 + half_) * kWarp + lane) * kSlotBytes;
}

namespace {

// One product of a warp, [16, 16] x [16, 8], from the registers of its 32 lanes. Sums over k in ascending order.
void multiply_fragments(const unsigned char* slots, std::size_t slot_bytes, float* const* accumulators) {
  float a[16][16], b[16][8], d[16][8];
  const auto row_of = [](int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); };
  const auto column_of = [](int lane, int i) { return lane % 4 * 2 + i % 2; };
  for (int lane = 0; lane < kWarp; ++lane) {
    std::uint32_t words[6];  // four of a, then two of b
    std::memcpy(words, slots + static_cast<std::size_t>(lane) * slot_bytes, sizeof words);
    for (int word = 0; word < 6; ++word) {
      for (int half = 0; half < 2; ++half) {
        const float value = to_float(Bf16{static_cast<std::uint16_t>(words[word] >> (16 * half))});
        const int k = (word >= 4 ? word - 4 : word / 2) * 8 + lane % 4 * 2 + half;
        (word >= 4 ? b[k][lane / 4] : a[lane / 4 + word % 2 * 8][k]) = value;
      }
    }
    for (int i = 0; i < 4; ++i) d[row_of(lane, i)][column_of(lane, i)] = accumulators[lane][i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) accumulators[lane][i] = d[row_of(lane, i)][column_of(lane, i)];
  }
}

}  // namespace

// Each lane publishes its fragments and the address of its four sums; the last lane that arrives computes the product
// for all.
void HostThread::mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  static_assert(sizeof a + sizeof b <= kSlotBytes);
  half_ ^= 1;
  std::memcpy(slot(lane()), a, sizeof a);
  std::memcpy(slot(lane()) + sizeof a, b, sizeof b);
  float** const accumulators = block_.accumulators_.data() + static_cast<std::ptrdiff_t>(warp()) * kWarp;
  accumulators[lane()] = d;
  block_.wait(block_.warp_barriers_[static_cast<std::size_t>(warp())],
              [&] { multiply_fragments(slot(0), kSlotBytes, accumulators); });
}

void run_on_host(const LaunchShape& shape, const std::function<void(HostThread&)>& kernel) {
  HostBlock block(shape, kernel);
  for (std::int64_t z = 0; z < shape.blocks_z; ++z) {
    for (std::int64_t y = 0; y < shape.blocks_y; ++y) {
      for (std::int64_t x = 0; x < shape.blocks_x; ++x) block.run(x, y, z);
    }
  }
}

}  // namespace magister::gpu
