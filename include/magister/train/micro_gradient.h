// The gradient of one micro-batch on its way into the step's sum, in the sum's buckets: one is given to it as soon as all of its parameters have been put. Each
// parameter's is put once and whole: it may therefore go on top of what the other half of a pair has left, with the bits of a sum that is made later,
// and nothing is set to zero first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/train/gradient_tree.h"
#include "magister/train/parameters.h"

namespace magister {

class StagedCopies;

class MicroGradient {
 public:
  // layout and sum are kept by reference. micro_batch: of this rank. device: where its buckets stand, the same for all of a sum. copies: of a GPU's code,
  // whose device the gradients come from: buckets on the host take memory that stays. Local.
  MicroGradient(const FlatLayout& layout, GradientTree& sum, std::uint64_t micro_batch,
                at::Device device = at::Device(at::kCPU), StagedCopies* copies = nullptr);

  // gradient: f32, in the parameter's shape, on the buckets' device, or on any where they are the host's. What was put before a pass ran out of memory is not put again by the next, which has the same bits.
  // Messages between the ranks move on. Local.
  void put(std::size_t parameter, const at::Tensor& gradient);
  // Gives the sum what it has not: where a loss was not finite, gradients were not put, and the numbers say nothing. Once. Local.
  void finish();
  bool finite() const;  // all that was put; of a GPU's this waits for the device, once for all parameters

 private:
  // The parts of a range of the flat tensor: the bucket, where the part begins in it and in the range, and how much it is.
  using Part =
      std::function<void(std::size_t bucket, std::int64_t in_bucket, std::int64_t in_range, std::int64_t count)>;
  void for_parts(const FlatRange& range, const Part& visit) const;
  void give(std::size_t bucket);
  // Into a part of a bucket.
  void put_there(const at::Tensor& gradient, const at::Tensor& place) const;

  const FlatLayout& layout_;
  GradientTree& sum_;
  std::uint64_t micro_batch_;
  std::vector<at::Tensor> buckets_;   // undefined: given
  std::vector<std::size_t> missing_;  // by bucket: parameters that were not put
  std::vector<bool> is_put_;          // by parameter
  std::vector<std::size_t>
      parts_put_;  // by parameter; one that stands in several buckets may find no memory for the next of them
  bool adds_, finite_ = true;
  at::Tensor not_finite_;  // of a GPU's gradients: i32 [1] there, 1 where a number was not finite
};

}  // namespace magister
