// The language in which GPU kernels are written: a kernel is a struct with its arguments and a template
// operator()(Thread&), where Thread gives indices, barriers, shuffles, shared memory and the tensor-core product. nvcc
// instantiates it with CudaThread (below), g++ with HostThread (host_block.h), which runs the threads of a block as
// fibers. The same source that runs on a GPU is therefore compared with plain code on machines without a GPU. This file
// must not include ATen, because nvcc compiles it.
// Sources: CUDA C++ programming guide; PTX ISA ("Matrix Fragments for mma.m16n8k16").
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#define MAGISTER_DEVICE __device__ __forceinline__
#define MAGISTER_UNROLL _Pragma("unroll")  // for loops that index registers by their counter
#else
#include <bit>
#define MAGISTER_DEVICE inline
#define MAGISTER_UNROLL
#endif

namespace magister::gpu {

// The upper half of an f32. Conversions round to nearest even, as ATen's do.
struct Bf16 {
  std::uint16_t bits;
};

#if defined(__CUDACC__)
MAGISTER_DEVICE float bits_as_float(std::uint32_t bits) { return __uint_as_float(bits); }
MAGISTER_DEVICE std::uint32_t float_as_bits(float value) { return __float_as_uint(value); }
MAGISTER_DEVICE std::int64_t double_as_bits(double value) { return __double_as_longlong(value); }
MAGISTER_DEVICE Bf16 to_bf16(float value) { return {__bfloat16_as_ushort(__float2bfloat16_rn(value))}; }
#else
MAGISTER_DEVICE float bits_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
MAGISTER_DEVICE std::uint32_t float_as_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
MAGISTER_DEVICE std::int64_t double_as_bits(double value) { return std::bit_cast<std::int64_t>(value); }
MAGISTER_DEVICE Bf16 to_bf16(float value) {
  const std::uint32_t bits = float_as_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fc0};  // NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}
#endif
MAGISTER_DEVICE float to_float(Bf16 value) { return bits_as_float(static_cast<std::uint32_t>(value.bits) << 16); }
MAGISTER_DEVICE float to_float(float value) { return value; }
// Two bf16 in a register, the first in the lower half, as the tensor cores take them.
MAGISTER_DEVICE std::uint32_t pack_bf16(float low, float high) {
#if defined(__CUDACC__)
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);  // one instruction
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(both.x)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(both.y)) << 16;
#else
  return static_cast<std::uint32_t>(to_bf16(low).bits) | static_cast<std::uint32_t>(to_bf16(high).bits) << 16;
#endif
}

// Converts a number to T, the type of the activations in memory: Bf16 or float.
template <typename T>
MAGISTER_DEVICE T stored(float value) {
  if constexpr (sizeof(T) == sizeof(Bf16)) {
    return to_bf16(value);
  } else {
    return value;
  }
}

// 16 bytes, the largest access of a thread.
struct alignas(16) Words4 {
  std::uint32_t word[4];
};

MAGISTER_DEVICE Words4 load_16(const void* global) { return *static_cast<const Words4*>(global); }
// For numbers that the launch reads only once: they are not kept in the L1 cache.
MAGISTER_DEVICE Words4 load_16_once(const void* global) {
#if defined(__CUDACC__)
  Words4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
               : "l"(global));
  return x;
#else
  return load_16(global);
#endif
}

// Stores to global memory in one access; after branches the compiler would split it into four.
MAGISTER_DEVICE void store_16(void* to, const Words4& x) {
#if defined(__CUDACC__)
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};\n" ::"l"(to), "r"(x.word[0]), "r"(x.word[1]), "r"(x.word[2]),
               "r"(x.word[3])
               : "memory");
#else
  *static_cast<Words4*>(to) = x;
#endif
}

// Relative error about 2^-22; the result is 0 if the divisor is beyond 2^126.
MAGISTER_DEVICE float divide_roughly(float x, float divisor) {
#if defined(__CUDACC__)
  return __fdividef(x, divisor);
#else
  return x / divisor;
#endif
}

constexpr int kWarp = 32;

// Blocks and threads of a launch. threads is a multiple of 32; shared_bytes is the dynamic shared memory per block.
struct LaunchShape {
  unsigned blocks_x = 1, blocks_y = 1, blocks_z = 1;
  unsigned threads = 256;
  std::size_t shared_bytes = 0;
};

#if defined(__CUDACC__)
// Operations that a kernel can use. Every thread of a block (sync) or of a warp (sync_warp, shuffles, mma) must take
// part.
struct CudaThread {
  MAGISTER_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  MAGISTER_DEVICE int num_threads() const { return static_cast<int>(blockDim.x); }
  MAGISTER_DEVICE int lane() const { return static_cast<int>(threadIdx.x) & (kWarp - 1); }
  MAGISTER_DEVICE int warp() const { return static_cast<int>(threadIdx.x) / kWarp; }
  MAGISTER_DEVICE int num_warps() const { return static_cast<int>(blockDim.x) / kWarp; }
  MAGISTER_DEVICE std::int64_t block_x() const { return blockIdx.x; }
  MAGISTER_DEVICE std::int64_t block_y() const { return blockIdx.y; }
  MAGISTER_DEVICE std::int64_t block_z() const { return blockIdx.z; }

  MAGISTER_DEVICE void sync() { __syncthreads(); }
  MAGISTER_DEVICE void sync_warp() { __syncwarp(); }
  template <typename T>
  MAGISTER_DEVICE T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  template <typename T>
  MAGISTER_DEVICE T shuffle(T value, int lane) {
    return __shfl_sync(0xffffffffu, value, lane);
  }

  // The block's dynamic shared memory, 16-byte aligned.
  MAGISTER_DEVICE unsigned char* shared() {
    extern __shared__ __align__(16) unsigned char magister_shared[];
    return magister_shared;
  }

  // Queues a copy of 16 bytes of global memory to shared memory without registers; zeros if not `there`. The block sees
  // the bytes after wait_for_copies() of the thread that queued the copy and a sync(). end_copies() closes a group of
  // copies.
  MAGISTER_DEVICE void copy_16(void* to_shared, const void* global, bool there) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global), "r"(there ? 16 : 0)
                 : "memory");
  }
  MAGISTER_DEVICE void end_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
  // Waits for all groups of this thread except the last kLeft.
  template <int kLeft>
  MAGISTER_DEVICE void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
  }
  // Asks for `bytes` of global memory to be brought into the L2 cache; both are multiples of 16. Returns at once, and
  // changes only when later reads end. Does nothing before compute capability 9.0.
  MAGISTER_DEVICE void ask_for(const void* global, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(global), "r"(bytes) : "memory");
#endif
  }
  // For kernels that may begin before the previous one has ended (launch.h). wait_for_earlier() returns when all
  // earlier kernels are done and their writes are visible; before it, the kernel must not read what they write, and
  // must not write. let_next_begin() allows the next kernel to place its blocks as soon as all blocks of this kernel
  // have begun. Both do nothing if the GPU or the launch does not support this.
  MAGISTER_DEVICE void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
  }
  MAGISTER_DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
  }
  // For memory that other devices or the host access while the kernel runs. A thread on any device that reads the word
  // by load_acquire() sees everything that the block wrote before the sync() that precedes store_release().
  // load_16_now() reads the current value and bypasses the L1 cache.
  MAGISTER_DEVICE void store_release(std::uint32_t* word, std::uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;\n" ::"l"(word), "r"(value) : "memory");
  }
  MAGISTER_DEVICE std::uint32_t load_acquire(const std::uint32_t* word) {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];\n" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  MAGISTER_DEVICE Words4 load_16_now(const void* global) {
    Words4 x;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                 : "l"(global)
                 : "memory");
    return x;
  }
  // pause() waits between two reads of a word; nanoseconds() is a clock that all blocks share.
  MAGISTER_DEVICE void pause() { __nanosleep(20); }
  MAGISTER_DEVICE std::uint64_t nanoseconds() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;\n" : "=l"(now));
    return now;
  }
  // Both functions return the previous value.
  MAGISTER_DEVICE int add_shared(int* counter, int value) { return atomicAdd(counter, value); }
  MAGISTER_DEVICE std::uint64_t add_shared(std::uint64_t* sum, std::uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
  }

  // d += a * b with a [16, 16], b [16, 8] bf16 and d [16, 8] f32, distributed over the warp. With g = lane / 4, t =
  // lane % 4: a0 = A[g][2t..], a1 = A[g+8][2t..], a2 = A[g][2t+8..], a3 = A[g+8][2t+8..] (pairs along k); b0 =
  // B[2t..][g], b1 = B[2t+8..][g]; d0, d1 = D[g][2t], D[g][2t+1]; d2, d3 = D[g+8][2t], D[g+8][2t+1].
  MAGISTER_DEVICE void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
#endif

// Runs a kernel's thread. A kernel that has work to do before it waits for the earlier ones (reading weights, which no
// kernel writes) declares kWaits and waits itself.
template <typename Kernel, typename Thread>
MAGISTER_DEVICE void run_thread(const Kernel& kernel, Thread& t) {
  t.let_next_begin();
  if constexpr (!requires { Kernel::kWaits; }) t.wait_for_earlier();
  kernel(t);
}

// Sums and maxima over a warp; every lane gets the result. The order of the sum is fixed, so its bits are reproducible.
template <typename Thread, typename T>
MAGISTER_DEVICE T warp_sum(Thread& t, T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += t.shuffle_xor(value, mask);
  return value;
}
template <typename Thread>
MAGISTER_DEVICE float warp_max(Thread& t, float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = fmaxf(value, t.shuffle_xor(value, mask));
  return value;
}

// The same over a block of at most 1024 threads. `scratch` is shared memory for 32 numbers that is not in use
// otherwise.
template <typename Thread, typename T>
MAGISTER_DEVICE T block_sum(Thread& t, T value, T* scratch) {
  value = warp_sum(t, value);
  if (t.lane() == 0) scratch[t.warp()] = value;
  t.sync();
  T sum = T(0);
  for (int warp = 0; warp < t.num_warps(); ++warp) sum += scratch[warp];
  t.sync();
  return sum;
}
template <typename Thread>
MAGISTER_DEVICE float block_max(Thread& t, float value, float* scratch) {
  value = warp_max(t, value);
  if (t.lane() == 0) scratch[t.warp()] = value;
  t.sync();
  float maximum = scratch[0];
  for (int warp = 1; warp < t.num_warps(); ++warp) maximum = fmaxf(maximum, scratch[warp]);
  t.sync();
  return maximum;
}

}  // namespace magister::gpu
