// Products of at most eight rows, the ones of a few texts: DecodeProduct with the same bits, whose words travel through
// shared memory instead of registers. A thread waits for loads to registers by one of six counters, which ptxas gives
// to all loads of a loop alike: in DecodeProduct's machine code the wait for a step's words is a wait for every load in
// flight, and x, loaded when it is needed, queues behind them. Asynchronous copies end in the order of their groups, so
// here kAhead - 1 steps stay in flight. Before a block waits for earlier kernels it also asks for the next words of its
// rows to be brought into the L2 cache, so that the memory is read while a norm or attention computes. Sources: the PTX
// ISA on cp.async and cp.async.bulk.prefetch; tests/gpu/device_code_test.py reads the waits. Legend: M rows, N outputs,
// K inputs, G groups of inputs that share a scale.
#pragma once

#include "model/gpu/kept.h"
#include "model/gpu/product_kernels.h"

namespace magister::gpu {

// The end of a block that stores its sums, those of 16 neighbouring outputs for each stack. The ends of paired_ends.h
// take eight outputs and their eight partners instead.
struct StoredEnds {
  static constexpr const char* kName = "ring_product";
  static constexpr bool kPaired = false;
  struct Held {};
};

// Blocks, warps, chains and steps are those of DecodeProduct with one tile of 8 rows. Every lane copies the bytes that
// it will read itself, so a step needs no barrier. Scales are whole rows of the block's outputs: they are copied once.
template <int kBits, int kParts, int kStacks, typename End = StoredEnds>
struct RingProduct {
  using Step = ProductStep<kBits, kParts, CodeFormat::Offset::kMiddle, 1, kStacks>;
  using Ends = ChainEnds<1, kStacks>;
  static_assert(kStacks == 1 || !End::kPaired);
  static constexpr const char* kName = End::kName;
  static constexpr int kMaxThreads = 32 * Step::kMostChains;
  static constexpr bool kWaits = true;
  // Two blocks of sixteen warps on a multiprocessor: 64 registers a thread. The other instances would spill with them.
  static constexpr int kMinBlocks = kBits == 16 || (kStacks == 1 && kParts == 1) ? 2 : 1;
  static constexpr int kOutputs = 16 * kStacks;
  // x of a step is as many bytes as its weights divided by kStacks and kBits / 8.
  static constexpr int kWeightBytes = 1024 * kStacks, kStageBytes = kWeightBytes + 512 * Step::kUnits;
  static constexpr int kAhead = kBits == 4 ? 2 : 3;
  // Steps of each warp that a block asks for beyond its first two. All blocks of an H200 together ask for at most 32 MB
  // of its L2 cache's 50.
  static constexpr int kAskedSteps = 6;
  ProductArguments a;
  End end{};
  NextWeight next{};  // a hint, which changes no result

  // Bytes of scales of a block, which follow the sums; then the stages of each warp.
  MAGISTER_DEVICE int scale_bytes() const { return kBits == 16 ? 0 : (kOutputs * a.weight.G * 2 + 15) / 16 * 16; }
  LaunchShape shape() const {
    const auto warps = static_cast<unsigned>(Step::num_chains(a.weight));
    return {.blocks_x = static_cast<unsigned>((a.weight.N + kOutputs - 1) / kOutputs),
            .threads = warps * 32,
            .shared_bytes = static_cast<std::size_t>(warps) * (Ends::kWarpBytes + kAhead * kStageBytes) +
                            static_cast<std::size_t>(scale_bytes())};
  }
  // most_shared: bytes of shared memory that a block can have. Rows with very many groups need more.
  bool takes(std::size_t most_shared) const {
    return reinterpret_cast<std::uintptr_t>(a.weight.scales) % 16 == 0 && shape().shared_bytes <= most_shared;
  }

  // The bytes of each row that blocks of as many warps ask for.
  struct Asked {
    int begin, count;
  };
  MAGISTER_DEVICE Asked asked(int warps) const {
    const int begin = 2 * 64 * warps, most = kAskedSteps * 64 * warps, left = a.weight.K * kBits / 8 - begin;
    return {begin, left < most ? left : most};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int num_steps = Step::num_steps(a.weight), warps = t.num_warps();
    unsigned char* const scales = t.shared() + warps * Ends::kWarpBytes;
    unsigned char* const ring = scales + scale_bytes() + t.warp() * kAhead * kStageBytes + t.lane() * 16;
    const Lane lane = my_lane(t);
    copy_scales(t, scales);
    MAGISTER_UNROLL
    for (int i = 0; i < kAhead; ++i)
      fetch_weights(t, lane, Step::step_of(t.warp(), i, warps), num_steps, ring + i * kStageBytes);
    if (const Asked more = asked(warps); t.thread() < kOutputs && more.count > 0)
      t.ask_for(a.weight.rows + output_at(t, t.thread()) * a.weight.row_bytes + more.begin, more.count);
    t.wait_for_earlier();  // only x comes from earlier kernels
    const bool asks_early = is_all_asked(warps);
    if (t.warp() == 0 && asks_early) ask_for_next(t);
    MAGISTER_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      fetch_x(t, lane, Step::step_of(t.warp(), i, warps), num_steps, ring + i * kStageBytes);
      t.end_copies();
    }
    if constexpr (kBits < 16) {  // the block shares the scales, which the first group holds
      t.template wait_for_copies<kAhead - 1>();
      t.sync();
    }
    typename End::Held held{};
    if constexpr (End::kPaired) {
      if (is_pair(t)) held = end.hold(t.thread() / 8, output_at(t, t.thread() % 8));
    }
    typename Step::Sums sums = {};
    unsigned char* stage = ring;
    int then = Step::step_of(t.warp(), kAhead, warps);
    for (int now = 2 * t.warp(); now < num_steps; now = behind(now, warps), then = behind(then, warps)) {
      t.template wait_for_copies<kAhead - 1>();
      Step step;
      Words4 x[Step::kUnits];
      read(t, stage, scales, now, step, x);
      fetch_weights(t, lane, then, num_steps, stage);
      fetch_x(t, lane, then, num_steps, stage);
      t.end_copies();
      step.multiply(t, a.weight, 1, [&](int, int unit) { return x[unit]; }, sums);
      stage = stage + kStageBytes == ring + kAhead * kStageBytes ? ring : stage + kStageBytes;
    }
    if (t.warp() == 0 && !asks_early) ask_for_next(t);
    if constexpr (End::kPaired) {
      add_pair(t, sums, held);
    } else {
      Ends{a}.add(t, sums, true, true);
    }
  }

  // True if a block has asked for the last words of its rows before its first step. What the next product reads is then
  // asked for at once, else behind the last step, so that the memory stays busy and the cache holds no more than it
  // must.
  MAGISTER_DEVICE bool is_all_asked(int warps) const {
    const Asked more = asked(warps);
    return a.weight.K * kBits / 8 <= more.begin + more.count;
  }
  // The blocks that share what is asked for: the last two for each multiprocessor of an H200.
  static constexpr int kAskingBlocks = 2 * kMultiprocessors;

 private:
  // The warp's step behind this one.
  MAGISTER_DEVICE static int behind(int step, int warps) { return step % 2 == 0 ? step + 1 : step + 2 * warps - 1; }
  template <typename Thread>
  MAGISTER_DEVICE void ask_for_next(Thread& t) const {
    const int blocks = (a.weight.N + kOutputs - 1) / kOutputs, asking = Step::least(blocks, kAskingBlocks),
              place = static_cast<int>(t.block_x()) - (blocks - asking);
    if (place < 0 || next.count == 0) return;
    const int end = (place + 1) * next.count / asking;
    for (int i = place * next.count / asking + t.lane(); i < end; i += kWarp) t.ask_for(next.row(i), next.bytes);
  }

  // This lane's rows of weights and of x. Outputs beyond N are clamped to the last one, and their sums are not used. A
  // lane without a row of x copies none, at M = 1 seven of eight, and what it then reads is not used either.
  struct Lane {
    const unsigned char* row[kStacks][2];
    const Bf16* x;
    bool has_row;
  };
  // Output i of the block.
  template <typename Thread>
  MAGISTER_DEVICE int output_at(Thread& t, int i) const {
    if constexpr (End::kPaired) {
      return end.first_of(static_cast<int>(t.block_x())) + i / 8 * end.distance() + i % 8;
    } else {
      return Step::least(static_cast<int>(t.block_x()) * kOutputs + i, a.weight.N - 1);
    }
  }
  template <typename Thread>
  MAGISTER_DEVICE Lane my_lane(Thread& t) const {
    Lane lane;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kStacks; ++i)
      lane.row[i / 2][i % 2] = kept(a.weight.rows + output_at(t, i * 8 + t.lane() / 4) * a.weight.row_bytes);
    lane.has_row = t.lane() / 4 < a.M;
    lane.x = kept(a.x_MK + (lane.has_row ? t.lane() / 4 : 0) * a.x_stride);
    return lane;
  }

  // The rows of scales of the block's outputs are neighbours, or those of eight outputs are, and begin at whole 16
  // bytes.
  template <typename Thread>
  MAGISTER_DEVICE void copy_scales(Thread& t, unsigned char* scales) const {
    if constexpr (kBits < 16) {
      constexpr int kNeighbours = End::kPaired ? 8 : kOutputs;
      const int G = a.weight.G;
      for (int part = 0; part < kOutputs / kNeighbours; ++part) {
        const int first = output_at(t, part * kNeighbours), count = Step::least(kNeighbours, a.weight.N - first) * G;
        const std::uint16_t* from = a.weight.scales + static_cast<std::int64_t>(first) * G;
        unsigned char* const to = scales + part * kNeighbours * G * 2;
        for (int i = t.thread() * 8; i < count; i += t.num_threads() * 8) {
          if (i + 8 <= count) {
            t.copy_16(to + i * 2, from + i, true);
          } else {
            for (int j = i; j < count; ++j) reinterpret_cast<std::uint16_t*>(to)[j] = from[j];
          }
        }
      }
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE void fetch_weights(Thread& t, const Lane& lane, int step, int num_steps, unsigned char* stage) const {
    const int k = step * Step::kInputs - Step::skipped(a.weight) + t.lane() % 4 * (128 / kBits);
    const std::int64_t byte = static_cast<std::int64_t>(Step::within_row(a.weight, k)) * kBits / 8;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kStacks; ++i) t.copy_16(stage + i * 512, lane.row[i / 2][i % 2] + byte, step < num_steps);
  }

  // Zeros outside the row.
  template <typename Thread>
  MAGISTER_DEVICE void fetch_x(Thread& t, const Lane& lane, int step, int num_steps, unsigned char* stage) const {
    if (!lane.has_row) return;
    const int first = step * Step::kInputs - Step::skipped(a.weight);
    // The units of a lane's own 16 bytes are neighbours, and all of them are in the row or none.
    constexpr int kNeighbours = kParts == 1 ? Step::kUnits : 1;
    MAGISTER_UNROLL
    for (int u = 0; u < Step::kUnits; u += kNeighbours) {
      const int k = first + Step::unit_input(u, t.lane() % 4);
      const bool there = step < num_steps && k >= 0 && k < a.weight.K;
      const Bf16* const from = lane.x + (there ? k : 0);
      MAGISTER_UNROLL
      for (int i = 0; i < kNeighbours; ++i) t.copy_16(stage + kWeightBytes + (u + i) * 512, from + i * 8, there);
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE void read(Thread& t, const unsigned char* stage, const unsigned char* scales, int now, Step& step,
                            Words4 (&x)[Step::kUnits]) const {
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kStacks; ++i) step.words[i / 2][i % 2] = load_16(stage + i * 512);
    MAGISTER_UNROLL
    for (int u = 0; u < Step::kUnits; ++u) x[u] = load_16(stage + kWeightBytes + u * 512);
    if constexpr (kBits < 16) {
      StoredWeight near = a.weight;  // the scales of the block alone
      near.scales = reinterpret_cast<const std::uint16_t*>(scales);
      int rows[kStacks][2];
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kStacks; ++i) {
        const int output = i * 8 + t.lane() / 4;
        rows[i / 2][i % 2] = (End::kPaired ? output : output_at(t, output) - output_at(t, 0)) * a.weight.G;
      }
      step.load_scales(t, near, rows, now * Step::kInputs - Step::skipped(a.weight));
    }
  }

  // Each of the first 8 M threads, of 128 or more, finishes a pair of sums.
  template <typename Thread>
  MAGISTER_DEVICE bool is_pair(Thread& t) const {
    return t.thread() < a.M * 8;
  }
  template <typename Thread>
  MAGISTER_DEVICE void add_pair(Thread& t, const typename Step::Sums& sums, const typename End::Held& held) const {
    const Ends ends{a};
    ends.leave(t, sums);
    if (!is_pair(t)) return;
    const int m = t.thread() / 8, i = t.thread() % 8, low = output_at(t, i), high = low + end.distance();
    const float low_sum = ends.total(t, 0.0f, m, i), high_sum = ends.total(t, 0.0f, m, i + 8);
    end.store(m, low, to_bf16(finished_sum(a, low, low_sum)), to_bf16(finished_sum(a, high, high_sum)), held);
  }
};

}  // namespace magister::gpu
