// HeadTile: the products of one tile of rows with the head, over slices of the vocabulary that any thread may take.
// Logits are transposed, [V, R]: the head is then the left side of the product as it is in memory, unpacked, and so is
// the gradient of its weights.
// Every element is one chain of fused multiply-adds in a fixed order (model/cpu/cpu_kernels.h), and sums over slices go
// through a fixed number of groups, so no bit depends on the threads.
// Legend: R rows of the tile, padded with zeros to a multiple of 16, D hidden size, V vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/cpu/cpu_kernels.h"

namespace magister {

class HeadTile {
 public:
  static constexpr std::int64_t kSlice = 480;  // entries: with 48 rows 92 kB of logits, which stay in L2
  static constexpr std::int64_t kGroups = 16;  // groups of slices: each sums its own gradient of the hidden rows

  // Room for tiles of up to max_rows rows. head: f32 [V, D], kept by reference.
  HeadTile(const float* head, std::int64_t vocab_size, std::int64_t hidden_size, std::int64_t max_rows);

  // Loads rows of hidden [*, D], at least one, each times the factor.
  void load(const float* hidden, std::span<const std::int64_t> rows, float factor);

  std::int64_t num_slices() const { return (V_ + kSlice - 1) / kSlice; }
  std::int64_t num_groups() const { return std::min(kGroups, num_slices()); }
  IndexRange slice(std::int64_t index) const;
  IndexRange slices_of(std::int64_t group) const;
  std::int64_t columns() const { return R_; }  // rows of the tile, with padding
  float* logits(std::uint64_t entry) { return logits_VR_.data() + static_cast<std::int64_t>(entry) * R_; }

  // Computes the slice's logits. Any thread, one per slice.
  void multiply(std::int64_t slice);
  // Gradients have replaced the logits: adds the slice's share of the head's gradient [V, D], and its share of the
  // hidden rows' to the group's sum, which the group's first slice begins at zero. Any thread, one per group, slices in
  // order. head_gradient may be null.
  void multiply_back(std::int64_t group, std::int64_t slice, float* head_gradient);
  // Sums the gradient of row r over all groups: out [D]. Any thread.
  void hidden_gradient(std::int64_t r, float* out) const;

  static std::uint64_t bytes(std::int64_t vocab_size, std::int64_t hidden_size, std::int64_t max_rows, int num_threads);

 private:
  static constexpr std::int64_t kPanel = 48, kSlab = 192;
  std::int64_t block_entries() const;  // entries of the vocabulary that a product takes at a time
  void add_to_head(IndexRange entries, float* head_gradient) const;

  const float* head_;
  std::int64_t V_, D_, R_ = 0, rows_ = 0, panels_;
  std::vector<float> hidden_DR_;   // only a right operand, so packed: [D][R]
  std::vector<float> hidden_PRW_;  // [panels][R][48]
  std::vector<float> logits_VR_;
  std::vector<float> partial_GRD_;  // [groups][R][D]
};

}  // namespace magister
