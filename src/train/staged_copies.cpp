// See staged_copies.h.
#include "magister/train/staged_copies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kTile = 256 << 10;  // numbers that a thread copies at once

void require_alike(const at::Tensor& from, const at::Tensor& to) {
  MAGISTER_ASSERT(from.scalar_type() == at::kFloat && to.scalar_type() == at::kFloat && from.is_contiguous() &&
                  to.is_contiguous() && from.numel() == to.numel());
}

}  // namespace

StagedCopies::Buffer& StagedCopies::buffer(std::int64_t piece) {
  Buffer& one = buffers_[static_cast<std::size_t>(piece % 2)];
  if (!one.numbers.defined())
    one.numbers = at::empty({kNumbers}, at::TensorOptions(at::kFloat).pinned_memory(!device_.is_cpu()));
  one.moved.wait();
  return one;
}

void StagedCopies::mark(Buffer& buffer) const {
  if (!device_.is_cpu()) buffer.moved = GpuEvent::record();
}

void StagedCopies::copy(const float* from, float* to, std::int64_t count) {
  const auto tile = [&](std::int64_t index, int) {
    const std::int64_t begin = index * kTile, size = std::min(kTile, count - begin);
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(size) * sizeof(float));
  };
  const std::int64_t num_tiles = (count + kTile - 1) / kTile;
  if (pool_.num_threads() > 1 && num_tiles > 1) return pool_.run(num_tiles, tile);
  for (std::int64_t index = 0; index < num_tiles; ++index) tile(index, 0);
}

void StagedCopies::to_device(const at::Tensor& from, const at::Tensor& to) {
  require_alike(from, to);
  const at::Tensor there = to.flatten();
  const float* const here = from.const_data_ptr<float>();
  for (std::int64_t begin = 0, piece = 0; begin < from.numel(); begin += kNumbers, ++piece) {
    const std::int64_t count = std::min(kNumbers, from.numel() - begin);
    Buffer& between = buffer(piece);
    copy(here + begin, between.numbers.data_ptr<float>(), count);
    there.narrow(0, begin, count).copy_(between.numbers.narrow(0, 0, count), /*non_blocking=*/true);
    mark(between);
  }
}

// One piece is moved while the piece before it is copied out of its buffer.
void StagedCopies::to_host(const at::Tensor& from, const at::Tensor& to) {
  require_alike(from, to);
  const at::Tensor there = from.flatten();
  float* const here = to.data_ptr<float>();
  const std::int64_t size = from.numel(), num_pieces = (size + kNumbers - 1) / kNumbers;
  for (std::int64_t piece = 0; piece <= num_pieces; ++piece) {
    if (piece < num_pieces) {
      const std::int64_t begin = piece * kNumbers, count = std::min(kNumbers, size - begin);
      Buffer& between = buffer(piece);
      between.numbers.narrow(0, 0, count).copy_(there.narrow(0, begin, count), /*non_blocking=*/true);
      mark(between);
    }
    if (piece == 0) continue;
    const std::int64_t begin = (piece - 1) * kNumbers;
    copy(buffer(piece - 1).numbers.const_data_ptr<float>(), here + begin, std::min(kNumbers, size - begin));
  }
}

at::Tensor StagedCopies::take(std::int64_t size) {
  for (const at::Tensor& one : kept_) {
    if (one.numel() == size && one.use_count() == 1) return one;
  }
  return kept_.emplace_back(at::empty({size}, at::kFloat));
}

at::Tensor StagedCopies::copy_of(const at::Tensor& from) {
  at::Tensor here = take(from.numel());
  to_host(from, here);
  return here;
}

}  // namespace magister
