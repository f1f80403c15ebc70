// Blocking as in model/cpu/matmul.cpp: slabs of 192 x 48 of the right side stay in L1 while the left side's rows pass.
// Logits and the head's gradient are made block by block of the vocabulary, and each block fetches the next one's rows.
#include "train/head_tile.h"

#include <algorithm>

#include "magister/model/cpu/panels.h"

namespace magister {
namespace {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

void multiply(const Product& product) { cpu_kernels().multiply[static_cast<int>(WeightFormat::kF32)](product); }

// The numbers that the next block reads from memory. Each product of this block fetches its share of them into L2.
class NextBlock {
 public:
  // work: the sum of k x columns over the block's products, not 0.
  NextBlock(const float* numbers, std::int64_t count, std::int64_t work)
      : numbers_(numbers), count_(count), work_(work) {}
  void share_with(Product& product) {
    const std::int64_t from = count_ * done_ / work_;
    done_ += product.k * product.columns;
    product.next = numbers_ + from;
    product.next_bytes = (count_ * done_ / work_ - from) * static_cast<std::int64_t>(sizeof(float));
  }

 private:
  const float* numbers_;
  std::int64_t count_, work_, done_ = 0;
};

}  // namespace

HeadTile::HeadTile(const float* head, std::int64_t vocab_size, std::int64_t hidden_size, std::int64_t max_rows)
    : head_(head), V_(vocab_size), D_(hidden_size), panels_((hidden_size + kPanel - 1) / kPanel) {
  const std::int64_t R = round_up(max_rows, 16);
  hidden_DR_.resize(static_cast<std::size_t>(D_ * R));
  hidden_PRW_.resize(static_cast<std::size_t>(panels_ * R * kPanel));
  logits_VR_.resize(static_cast<std::size_t>(V_ * R));
  partial_GRD_.resize(static_cast<std::size_t>(num_groups() * R * D_));
}

std::uint64_t HeadTile::bytes(std::int64_t V, std::int64_t D, std::int64_t max_rows, int num_threads) {
  const std::int64_t R = round_up(max_rows, 16);
  const std::int64_t groups = std::min(kGroups, (V + kSlice - 1) / kSlice);
  return sizeof(float) * static_cast<std::uint64_t>(R * (V + D + round_up(D, kPanel) + groups * D) +
                                                    num_threads * kSlab * (R + kPanel));
}

void HeadTile::load(const float* hidden, std::span<const std::int64_t> rows, float factor) {
  rows_ = static_cast<std::int64_t>(rows.size());
  R_ = round_up(rows_, 16);
  std::fill(hidden_DR_.begin(), hidden_DR_.end(), 0.0f);
  std::fill(hidden_PRW_.begin(), hidden_PRW_.end(), 0.0f);
  for (std::int64_t r = 0; r < rows_; ++r) {
    const float* from = hidden + rows[static_cast<std::size_t>(r)] * D_;
    for (std::int64_t d = 0; d < D_; ++d) {
      const float x = from[d] * factor;
      hidden_DR_[static_cast<std::size_t>(d * R_ + r)] = x;
      hidden_PRW_[static_cast<std::size_t>((d / kPanel * R_ + r) * kPanel + d % kPanel)] = x;
    }
  }
}

IndexRange HeadTile::slice(std::int64_t index) const {
  return {static_cast<std::uint64_t>(index * kSlice), static_cast<std::uint64_t>(std::min((index + 1) * kSlice, V_))};
}

IndexRange HeadTile::slices_of(std::int64_t group) const {
  const std::int64_t slices = num_slices(), groups = num_groups();
  return {static_cast<std::uint64_t>(slices * group / groups),
          static_cast<std::uint64_t>(slices * (group + 1) / groups)};
}

std::int64_t HeadTile::block_entries() const {
  // 112 kB, or 24 rows where these are more: the kernels take 6 or 8 rows at a time.
  constexpr std::int64_t kNumbers = 28 * 1024, kRowsOfKernels = 24;
  return std::clamp(kNumbers / D_ / kRowsOfKernels * kRowsOfKernels, kRowsOfKernels, kSlab);
}

void HeadTile::multiply(std::int64_t index) {
  const IndexRange entries = slice(index);
  const auto last = static_cast<std::int64_t>(entries.end);
  for (auto begin = static_cast<std::int64_t>(entries.begin); begin < last; begin += block_entries()) {
    const std::int64_t end = std::min(begin + block_entries(), last);
    NextBlock next(head_ + end * D_, std::min(block_entries(), V_ - end) * D_, D_ * R_);
    for (std::int64_t d = 0; d < D_; d += kSlab) {
      for (std::int64_t column = 0; column < R_; column += kPanel) {
        Product product;
        product.a = head_ + begin * D_ + d;
        product.a_stride = D_;
        product.rows = end - begin;
        product.b = hidden_DR_.data() + d * R_ + column;
        product.b_stride = R_;
        product.k = std::min(kSlab, D_ - d);
        product.c = logits_VR_.data() + begin * R_ + column;
        product.c_stride = R_;
        product.columns = std::min(kPanel, R_ - column);
        product.accumulate = d > 0;
        next.share_with(product);
        magister::multiply(product);
      }
    }
  }
}

void HeadTile::add_to_head(IndexRange entries, float* head_gradient) const {
  const auto last = static_cast<std::int64_t>(entries.end);
  for (auto begin = static_cast<std::int64_t>(entries.begin); begin < last; begin += block_entries()) {
    const std::int64_t end = std::min(begin + block_entries(), last);
    NextBlock next(head_gradient + end * D_, std::min(block_entries(), V_ - end) * D_, R_ * D_);
    for (std::int64_t p = 0; p < panels_; ++p) {
      Product product;
      product.a = logits_VR_.data() + begin * R_;
      product.a_stride = R_;
      product.rows = end - begin;
      product.b = hidden_PRW_.data() + p * R_ * kPanel;
      product.b_stride = kPanel;
      product.k = R_;
      product.c = head_gradient + begin * D_ + p * kPanel;
      product.c_stride = D_;
      product.columns = std::min(kPanel, D_ - p * kPanel);
      product.accumulate = true;
      next.share_with(product);
      magister::multiply(product);
    }
  }
}

void HeadTile::multiply_back(std::int64_t group, std::int64_t index, float* head_gradient) {
  const IndexRange entries = slice(index);
  alignas(64) thread_local float slab[kSlab * kPanel];
  thread_local std::vector<float> gradient_RS;
  gradient_RS.resize(static_cast<std::size_t>(R_ * kSlab));
  bool first = static_cast<std::uint64_t>(index) == slices_of(group).begin;
  for (std::uint64_t begin = entries.begin; begin < entries.end; begin += kSlab) {
    const IndexRange part{begin, std::min(begin + kSlab, entries.end)};
    if (head_gradient != nullptr) add_to_head(part, head_gradient);
    const auto v = static_cast<std::int64_t>(begin), depth = static_cast<std::int64_t>(part.size());
    turn(logits_VR_.data() + v * R_, depth, rows_, R_, gradient_RS.data(), kSlab);
    for (std::int64_t p = 0; p < panels_; ++p) {
      // Copied, because rows of the head are D apart, which for D = 1024 is one set of the L1 cache, and the kernel
      // reads whole panels.
      const std::int64_t width = std::min(kPanel, D_ - p * kPanel);
      copy_to_panel(head_ + v * D_ + p * kPanel, depth, width, D_, slab);
      Product product;
      product.a = gradient_RS.data();
      product.a_stride = kSlab;
      product.rows = rows_;
      product.b = slab;
      product.b_stride = kPanel;
      product.k = depth;
      product.c = partial_GRD_.data() + group * R_ * D_ + p * kPanel;
      product.c_stride = D_;
      product.columns = width;
      product.accumulate = !first;
      magister::multiply(product);
    }
    first = false;
  }
}

void HeadTile::hidden_gradient(std::int64_t r, float* out) const {
  std::fill_n(out, D_, 0.0f);
  for (std::int64_t g = 0; g < num_groups(); ++g) {
    const float* partial = partial_GRD_.data() + (g * R_ + r) * D_;
    for (std::int64_t d = 0; d < D_; ++d) out[d] += partial[d];
  }
}

}  // namespace magister
