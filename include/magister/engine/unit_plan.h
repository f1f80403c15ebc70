// The rule of the plan: which consecutive samples form a unit. It is a function of the samples' lengths and of
// unit_tokens alone, never of ranks, groups or restarts. So it fixes every batch and with it every bit of the results.
#pragma once

#include <cstdint>

namespace magister {

// Greedy packing of samples in order. A unit takes samples until the next one would exceed unit_tokens; a longer sample
// is a unit of its own. Empty samples cost no tokens, but a unit has at most max_samples samples.
// Example with unit_tokens 10: lengths 4, 5, 3, 12, 1 give units {4, 5}, {3}, {12}, {1}.
class UnitPacker {
 public:
  static constexpr std::uint64_t kMaxSamples = 65536;

  // State at a border between ranks: the content of the open unit so far.
  struct State {
    std::uint64_t tokens = 0;
    std::uint64_t samples = 0;  // 0: no unit is open
    std::uint64_t num_units = 0;
  };

  explicit UnitPacker(std::uint64_t unit_tokens) : UnitPacker(unit_tokens, State(), kMaxSamples) {}
  UnitPacker(std::uint64_t unit_tokens, State state, std::uint64_t max_samples = kMaxSamples)
      : unit_tokens_(unit_tokens), max_samples_(max_samples), state_(state) {}

  // Adds a sample. Returns true if it is the first of a new unit.
  bool add(std::uint64_t num_tokens) {
    const bool opens =
        state_.samples == 0 || state_.samples >= max_samples_ || state_.tokens + num_tokens > unit_tokens_;
    if (opens) {
      state_.tokens = state_.samples = 0;
      ++state_.num_units;
    }
    state_.tokens += num_tokens;
    ++state_.samples;
    return opens;
  }
  const State& state() const { return state_; }

 private:
  std::uint64_t unit_tokens_, max_samples_;
  State state_;
};

// What happens to a record that is longer than max_length.
enum class Overflow { kTruncate, kWindow, kError };

// Number of windows of a record of `length` tokens: they start at 0, stride, 2 * stride, ... until the end is covered.
// Example: length 10, max_length 4, stride 3: [0,4) [3,7) [6,10).
inline std::uint64_t num_windows(std::uint64_t length, std::uint64_t max_length, std::uint64_t stride) {
  return length <= max_length ? 1 : 1 + (length - max_length + stride - 1) / stride;
}

}  // namespace magister
