// The gradient of one micro-batch, collected in the buckets of the step's sum. A bucket is given to the sum as soon as
// all of its parameters have been put. Each parameter is put once and whole, so it may be added directly to what the
// other half of a pair has left, with the bits of a later sum, and nothing is set to zero first.
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
  // layout and sum are kept by reference. micro_batch: one of this rank. device: where the buckets are, the same for
  // all of a sum. copies: for GPU code, whose device the gradients come from; buckets on the host use its kept memory.
  // Local.
  MicroGradient(const FlatLayout& layout, GradientTree& sum, std::uint64_t micro_batch,
                at::Device device = at::Device(at::kCPU), StagedCopies* copies = nullptr);

  // gradient: f32, in the parameter's shape, on the buckets' device, or on any device if the buckets are on the host. A
  // parameter that was put before a pass ran out of memory is not put again by the repeated pass, which has the same
  // bits.
  // Also advances the exchange between the ranks. Local.
  void put(std::size_t parameter, const at::Tensor& gradient);
  // Gives the sum the remaining buckets: if a loss was not finite, gradients were not put, and the numbers have no
  // meaning. Call once. Local.
  void finish();
  bool finite() const;  // of all that was put; with GPU code this waits for the device, once for all parameters

 private:
  // Visits the parts of a range of the flat tensor: the bucket, where the part begins in it and in the range, and its
  // size.
  using Part =
      std::function<void(std::size_t bucket, std::int64_t in_bucket, std::int64_t in_range, std::int64_t count)>;
  void for_parts(const FlatRange& range, const Part& visit) const;
  void give(std::size_t bucket);
  // Writes a gradient into a part of a bucket.
  void put_at(const at::Tensor& gradient, const at::Tensor& place) const;

  const FlatLayout& layout_;
  GradientTree& sum_;
  std::uint64_t micro_batch_;
  std::vector<at::Tensor> buckets_;   // undefined: already given
  std::vector<std::size_t> missing_;  // by bucket: number of parameters not put yet
  std::vector<bool> is_put_;          // by parameter
  // By parameter: number of parts already put. A parameter in several buckets may run out of memory between two of
  // them.
  std::vector<std::size_t> parts_put_;
  bool adds_, finite_ = true;
  at::Tensor not_finite_;  // GPU gradients: i32 [1] on the device, 1 if a number was not finite
};

}  // namespace magister
