// See staged_copies.h.
#include "magister/train/staged_copies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kTile = 256 << 10;  // numbers that a thread copies at once

void require_alike(const at::Tensor& from, const at::Tensor& to) {
  MAGISTER_ASSERT(from.scalar_type() == at::kFloat && to.scalar_type() == at::kFloat && from.is_contiguous() &&
                  to.is_contiguous() && from.numel() == to.numel());
}

}  // namespace

StagedCopies::Buffer& StagedCopies::take_buffer(Buffers& buffers) const {
  Buffer& one = buffers.both[buffers.next];
  buffers.next = 1 - buffers.next;
  if (!one.numbers.defined())
    one.numbers = at::empty({kPiece}, at::TensorOptions(at::kFloat).pinned_memory(!device_.is_cpu()));
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
  for (std::int64_t begin = 0; begin < from.numel(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, from.numel() - begin);
    Buffer& between = take_buffer(leaving_);
    copy(here + begin, between.numbers.data_ptr<float>(), count);
    there.narrow(0, begin, count).copy_(between.numbers.narrow(0, 0, count), /*non_blocking=*/true);
    mark(between);
  }
}

// Two pieces are under way: the visited one and the next.
void StagedCopies::each_piece(const at::Tensor& from,
                              const std::function<void(const at::Tensor& piece, std::int64_t begin)>& visit) {
  const at::Tensor there = from.flatten();
  const std::int64_t size = from.numel();
  const auto bring = [&](std::int64_t begin) {
    Buffer& between = take_buffer(arriving_);
    const at::Tensor numbers = between.numbers.narrow(0, 0, std::min(kPiece, size - begin));
    numbers.copy_(there.narrow(0, begin, numbers.numel()), /*non_blocking=*/true);
    mark(between);
    return std::pair(&between, numbers);
  };
  if (size == 0) return;
  auto arriving = bring(0);
  for (std::int64_t begin = 0; begin < size; begin += kPiece) {
    const auto [buffer, numbers] = arriving;
    if (begin + kPiece < size) arriving = bring(begin + kPiece);
    buffer->moved.wait();
    visit(numbers, begin);
  }
}

void StagedCopies::to_host(const at::Tensor& from, const at::Tensor& to) {
  require_alike(from, to);
  float* const here = to.data_ptr<float>();
  each_piece(from, [&](const at::Tensor& piece, std::int64_t begin) {
    copy(piece.const_data_ptr<float>(), here + begin, piece.numel());
  });
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
