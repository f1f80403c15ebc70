#include "magister/train/micro_gradient.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/device/upload.h"
#include "magister/train/memory_ladder.h"
#include "magister/train/staged_copies.h"
#include "train/gpu/put_kernel.h"
#include "train/gpu_numbers.h"

namespace magister {

MicroGradient::MicroGradient(const FlatLayout& layout, GradientTree& sum, std::uint64_t micro_batch, at::Device device,
                             StagedCopies* copies)
    : layout_(layout),
      sum_(sum),
      micro_batch_(micro_batch),
      buckets_(sum.take_other_half(micro_batch)),
      missing_(sum.num_buckets()),
      is_put_(layout.all().size()),
      parts_put_(layout.all().size()),
      adds_(!buckets_.empty()) {
  const auto memory = [&](std::int64_t size) {
    return copies != nullptr && device.is_cpu() ? copies->take(size)
                                                : at::empty({size}, at::TensorOptions(at::kFloat).device(device));
  };
  for (std::size_t b = 0; b < sum.num_buckets() && !adds_; ++b) buckets_.push_back(memory(sum.bucket(b).size()));
  if (copies != nullptr) not_finite_ = at::zeros({1}, at::TensorOptions(at::kInt).device(copies->device()));
  // The padding after each parameter stays 0, because norms and updates run over it.
  const auto clear = [&](std::size_t b, std::int64_t in_bucket, std::int64_t, std::int64_t count) {
    buckets_[b].narrow(0, in_bucket, count).zero_();
  };
  std::int64_t end = 0;
  for (const TrainParameter& parameter : layout.all()) {
    if (!adds_) for_parts({end, parameter.offset}, clear);
    end = parameter.offset + parameter.count;
    for_parts({parameter.offset, end}, [&](std::size_t b, auto...) { ++missing_[b]; });
  }
  if (!adds_) for_parts({end, layout.flat_size()}, clear);
}

void MicroGradient::for_parts(const FlatRange& range, const Part& visit) const {
  // All buckets but the last have the same size.
  const std::int64_t size = sum_.bucket(0).size();
  for (std::int64_t begin = range.begin; begin < range.end;) {
    const auto bucket = static_cast<std::size_t>(begin / size);
    const std::int64_t end = std::min(range.end, sum_.bucket(bucket).end);
    visit(bucket, begin - sum_.bucket(bucket).begin, begin - range.begin, end - begin);
    begin = end;
  }
}

void MicroGradient::put(std::size_t parameter, const at::Tensor& gradient) {
  if (is_put_[parameter]) return;
  // Checked while it is in the cache. On a GPU, reading a number would stop the pass at every parameter.
  if (!not_finite_.defined()) finite_ = finite_ && std::isfinite(gradient.sum().item<double>());
  const TrainParameter& row = layout_.all()[parameter];
  const FlatRange range{row.offset, row.offset + row.count};
  at::Tensor flat;  // if a border of buckets divides it
  std::size_t part = 0;
  for_parts(range, [&](std::size_t b, std::int64_t in_bucket, std::int64_t in_range, std::int64_t count) {
    if (part++ < parts_put_[parameter]) return;
    TORCH_CHECK_WITH(OutOfMemoryError, !fail_point("train.gradient.part"), "a test asked for it");
    at::Tensor place = buckets_[b].narrow(0, in_bucket, count);
    const bool whole = count == row.count;
    if (whole) place = place.view(row.shape);
    if (!whole && !flat.defined()) flat = gradient.reshape({-1});
    const at::Tensor given = whole ? gradient : flat.narrow(0, in_range, count);
    put_at(given, place);
    ++parts_put_[parameter];
  });
  is_put_[parameter] = true;
  for_parts(range, [&](std::size_t b, auto...) {
    if (--missing_[b] == 0) give(b);
  });
  sum_.move_on();
}

void MicroGradient::put_at(const at::Tensor& gradient, const at::Tensor& place) const {
  const bool of_gpu = not_finite_.defined();
  if (of_gpu && gradient.device() == place.device() && place.device() == not_finite_.device() &&
      gradient.scalar_type() == at::kFloat && gradient.is_contiguous() && is_aligned_16(gradient) &&
      is_aligned_16(place)) {
    const gpu::Queue queue{place.is_cpu() ? -1 : static_cast<int>(place.device().index()), nullptr};
    start(gpu::PutNumbers{numbers<const float>(gradient), numbers<float>(place), gradient.numel(), adds_,
                          numbers<std::uint32_t>(not_finite_)},
          queue);
    return;
  }
  if (of_gpu) not_finite_.bitwise_or_(at::isfinite(gradient.sum()).logical_not().to(not_finite_.options()));
  const at::Tensor values = place.is_cpu() ? download(gradient) : gradient;
  if (adds_) {
    place.add_(values);
  } else {
    place.copy_(values);
  }
}

// A failure here leaves half a sum, which a second pass cannot complete. It ends the run, which resumes from its last
// state.
void MicroGradient::give(std::size_t bucket) {
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, !fail_point("train.gradient.give"), "a test asked for it");
    sum_.add(micro_batch_, bucket, std::exchange(buckets_[bucket], {}), adds_);
  } catch (const std::exception& error) {
    MAGISTER_CHECK(
        !is_out_of_memory(error), ExitCode::kConfig,
        "no memory to add a micro-batch's gradients to those of its step (some are added already, so it cannot be "
        "computed again); give the job more memory and run the same command again");
    throw;
  }
}

bool MicroGradient::finite() const {
  return finite_ && (!not_finite_.defined() || not_finite_.item<std::int32_t>() == 0);
}

void MicroGradient::finish() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].defined()) give(b);
  }
}

}  // namespace magister
