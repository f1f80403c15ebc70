// The sum over the shards of a group in one kernel: every shard writes its numbers into the memory of all others, waits
// until theirs have arrived, and adds them in shard order, so the bits are the same on all shards and equal those of a
// CPU group. The data cross the links once; this is for the small sums of decoding.
// A "turn" is the number of a block's sum, counted from 1. The two halves of the memory alternate between turns. A
// shard may write into a half again because it has seen the peer's flag of the turn before, which the peer sets after
// it has read that half.
// Source: PTX ISA, "Memory Consistency Model" (release and acquire at system scope).
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

constexpr int kMostPeers = 8;            // the GPUs of a host
constexpr int kPeerBlocks = 256;         // all resident on 43 multiprocessors or more: blocks wait for other GPUs
constexpr int kPeerBlockNumbers = 1024;  // 16 bytes per thread
constexpr std::int64_t kPeerSumNumbers = std::int64_t{kPeerBlocks} * kPeerBlockNumbers;  // per launch: 1 MiB

// Memory of a shard: f32 [2 halves, blocks, shards, numbers of a block], which its peers write; then u32: the flags of
// the peers [shards, blocks], the turns of its own blocks [blocks], and whether it gave up.
struct PeerMemoryLayout {
  int shards;
  MAGISTER_DEVICE std::int64_t numbers(std::int64_t half, std::int64_t block, int shard) const {
    return ((half * kPeerBlocks + block) * shards + shard) * kPeerBlockNumbers;
  }
  MAGISTER_DEVICE std::int64_t flag(int shard, std::int64_t block) const {
    return numbers(2, 0, 0) + std::int64_t{shard} * kPeerBlocks + block;
  }
  MAGISTER_DEVICE std::int64_t turn(std::int64_t block) const { return flag(shards, block); }
  MAGISTER_DEVICE std::int64_t gave_up() const { return turn(kPeerBlocks); }
  MAGISTER_DEVICE std::int64_t words() const { return gave_up() + 4; }  // in all, of 4 bytes each
};

// Flags in host memory that the devices of this process access.
struct PeerFlags {
  std::uint32_t has_left[kMostPeers];  // by shard of this process: it sends nothing more
  std::uint32_t gave_up[kMostPeers];   // by shard: it waited in vain, so its numbers are invalid
};

struct PeerSum {
  static constexpr const char* kName = "peer_sum";
  static constexpr int kMaxThreads = 256;
  float* numbers;  // 16-byte aligned; becomes the sum, or NaN if a peer is missing
  std::int64_t count;
  float* memory[kMostPeers];  // by shard
  PeerFlags* flags;
  std::uint64_t patience;  // nanoseconds
  PeerMemoryLayout layout;
  int own;  // this shard

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((count + kPeerBlockNumbers - 1) / kPeerBlockNumbers),
            .threads = kMaxThreads,
            .shared_bytes = sizeof(Turn)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* turn = reinterpret_cast<Turn*>(t.shared());
    std::uint32_t* const own_turn = word(own, layout.turn(t.block_x()));
    if (t.thread() == 0) *turn = {*own_turn + 1, t.load_acquire(word(own, layout.gave_up()))};
    t.sync();
    const std::int64_t first = t.block_x() * kPeerBlockNumbers + 4 * t.thread();
    if (turn->gave_up != 0) return store(first, nothing());  // given up before; the others get no numbers
    const std::int64_t half = turn->number % 2;
    const Words4 mine = load(first);
    MAGISTER_UNROLL
    for (int shard = 0; shard < kMostPeers; ++shard) {
      if (shard < layout.shards && shard != own)
        store_16(memory[shard] + layout.numbers(half, t.block_x(), own) + 4 * t.thread(), mine);
    }
    t.sync();
    if (is_peer(t)) t.store_release(word(t.thread(), layout.flag(own, t.block_x())), turn->number);
    t.sync();
    if (is_peer(t) && !wait_for(t, t.thread(), turn->number)) {
      turn->gave_up = 1;
      t.store_release(word(own, layout.gave_up()), 1);
      t.store_release(&flags->gave_up[own], 1);
    }
    t.sync();
    store(first, turn->gave_up != 0 ? nothing() : sum(t, half, mine));
    if (t.thread() == 0) *own_turn = turn->number;
  }

 private:
  struct Turn {
    std::uint32_t number, gave_up;
  };

  template <typename Thread>
  MAGISTER_DEVICE bool is_peer(Thread& t) const {
    return t.thread() < layout.shards && t.thread() != own;
  }
  // Selects by comparisons: indexing an array of arguments with a register would copy the array to the thread's local
  // memory.
  MAGISTER_DEVICE float* memory_of(int shard) const {
    float* found = memory[0];
    MAGISTER_UNROLL
    for (int i = 1; i < kMostPeers; ++i) found = i == shard ? memory[i] : found;
    return found;
  }
  MAGISTER_DEVICE std::uint32_t* word(int shard, std::int64_t index) const {
    return reinterpret_cast<std::uint32_t*>(memory_of(shard)) + index;
  }
  MAGISTER_DEVICE static Words4 nothing() { return {{0x7fc00000u, 0x7fc00000u, 0x7fc00000u, 0x7fc00000u}}; }  // NaN

  // Returns whether the peer's numbers have arrived. A peer may be one turn ahead; turn numbers wrap after 2^32.
  template <typename Thread>
  MAGISTER_DEVICE bool wait_for(Thread& t, int peer, std::uint32_t turn) const {
    constexpr int kLooks = 64;  // polls between two reads of the host's flags, which are slow
    const std::uint32_t* flag = word(own, layout.flag(peer, t.block_x()));
    const std::uint64_t begin = t.nanoseconds();
    for (int looks = 1;; ++looks) {
      if (has_come(t, flag, turn)) return true;
      if (looks % kLooks == 0) {
        const bool left = t.load_acquire(&flags->has_left[peer]) != 0 || t.load_acquire(&flags->has_left[own]) != 0;
        if (left || t.nanoseconds() - begin > patience)
          return has_come(t, flag, turn);  // the last numbers may have arrived meanwhile
      }
      t.pause();
    }
  }
  template <typename Thread>
  MAGISTER_DEVICE bool has_come(Thread& t, const std::uint32_t* flag, std::uint32_t turn) const {
    return static_cast<std::int32_t>(t.load_acquire(flag) - turn) >= 0;
  }

  template <typename Thread>
  MAGISTER_DEVICE Words4 sum(Thread& t, std::int64_t half, const Words4& mine) const {
    Words4 sum{};
    const float* const received = memory_of(own);
    for (int shard = 0; shard < layout.shards; ++shard) {
      const Words4 theirs =
          shard == own ? mine : t.load_16_now(received + layout.numbers(half, t.block_x(), shard) + 4 * t.thread());
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) {
        sum.word[i] = shard == 0 ? theirs.word[i]  // not 0 + x, which would turn -0 into 0
                                 : float_as_bits(bits_as_float(sum.word[i]) + bits_as_float(theirs.word[i]));
      }
    }
    return sum;
  }

  MAGISTER_DEVICE Words4 load(std::int64_t first) const {
    if (first + 4 <= count) return load_16(numbers + first);
    Words4 x{};
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (first + i < count) x.word[i] = float_as_bits(numbers[first + i]);
    }
    return x;
  }
  MAGISTER_DEVICE void store(std::int64_t first, const Words4& x) const {
    if (first + 4 <= count) return store_16(numbers + first, x);
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (first + i < count) numbers[first + i] = bits_as_float(x.word[i]);
    }
  }
};

}  // namespace magister::gpu
