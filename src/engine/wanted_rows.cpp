// A shard's share is one row of doubles: maximum and sum of every row, then the logits of all wanted tokens. The shares
// are merged here.
#include "engine/wanted_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/gpu/wanted_kernel.h"
#include "magister/core/error.h"
#include "magister/device/upload.h"

namespace magister {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// The tokens of all rows in one list, and the position at which each row's tokens begin.
struct WantedIds {
  std::vector<std::int32_t> ids, first{0};

  explicit WantedIds(const std::vector<std::span<const TokenId>>& wanted) {
    for (const std::span<const TokenId> row : wanted) {
      ids.insert(ids.end(), row.begin(), row.end());
      first.push_back(static_cast<std::int32_t>(ids.size()));
    }
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(first.size()) - 1; }
};

void share_on_cpu(const at::Tensor& logits_Rv, const WantedIds& wanted, std::int64_t vocab_begin, double* share) {
  const std::int64_t v = logits_Rv.size(1);
  double* const found = share + 2 * wanted.rows();
  for (std::int64_t r = 0; r < wanted.rows(); ++r) {
    const float* const row = logits_Rv.const_data_ptr<float>() + r * v;
    const double top = v == 0 ? kNothing : static_cast<double>(*std::max_element(row, row + v));
    double sum = 0;
    for (std::int64_t i = 0; i < v; ++i) sum += std::exp(static_cast<double>(row[i]) - top);
    const bool finite = std::all_of(row, row + v, [](float logit) { return std::isfinite(logit); });
    share[2 * r] = top;
    share[2 * r + 1] = finite ? sum : std::numeric_limits<double>::quiet_NaN();
    for (auto i = wanted.first[static_cast<std::size_t>(r)]; i < wanted.first[static_cast<std::size_t>(r) + 1]; ++i) {
      const std::int64_t column = wanted.ids[static_cast<std::size_t>(i)] - vocab_begin;
      found[i] = column >= 0 && column < v ? static_cast<double>(row[column]) : kNothing;
    }
  }
}

void share_on_gpu(const at::Tensor& logits_Rv, const WantedIds& wanted, std::int64_t vocab_begin,
                  const at::Tensor& share, const gpu::Queue& queue) {
  const auto there = [&](const std::vector<std::int32_t>& numbers) {
    return upload(at::tensor(numbers, at::kInt), logits_Rv.device());
  };
  const at::Tensor first_R1 = there(wanted.first), ids_N = there(wanted.ids);
  auto* numbers = share.data_ptr<double>();
  const gpu::WantedLogits kernel{logits_Rv.const_data_ptr<float>(),
                                 first_R1.const_data_ptr<std::int32_t>(),
                                 ids_N.const_data_ptr<std::int32_t>(),
                                 numbers,
                                 numbers + 2 * wanted.rows(),
                                 logits_Rv.size(1),
                                 vocab_begin};
  gpu::launch(kernel, kernel.shape(wanted.rows()), queue);
}

}  // namespace

std::vector<WantedRow> read_wanted(const at::Tensor& logits_Rv, const std::vector<std::span<const TokenId>>& wanted,
                                   const LmHead& head, ProcessGroup& group) {
  const WantedIds all(wanted);
  MAGISTER_ASSERT(logits_Rv.is_contiguous() && logits_Rv.size(0) == all.rows());
  const std::int64_t width = 2 * all.rows() + static_cast<std::int64_t>(all.ids.size());
  at::Tensor share = at::empty({1, width}, logits_Rv.options().dtype(at::kDouble));
  const auto vocab_begin = static_cast<std::int64_t>(head.vocab.begin);
  if (head.queue) {
    share_on_gpu(logits_Rv, all, vocab_begin, share, *head.queue);
  } else {
    share_on_cpu(logits_Rv, all, vocab_begin, share.data_ptr<double>());
  }
  const at::Tensor shares = (group.tp_size() == 1 ? share : group.all_gather(share)).cpu();
  std::vector<WantedRow> rows(wanted.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto each = [&](std::size_t place, const auto& take) {
      for (int s = 0; s < group.tp_size(); ++s) take(shares.const_data_ptr<double>() + s * width + place);
    };
    double top = kNothing, sum = 0;
    each(2 * r, [&](const double* numbers) { top = std::max(top, numbers[0]); });
    each(2 * r, [&](const double* numbers) {
      if (numbers[1] != 0) sum += numbers[1] * std::exp(numbers[0] - top);
    });
    rows[r].logsumexp = top + std::log(sum);
    for (auto i = all.first[r]; i < all.first[r + 1]; ++i) {
      double logit = kNothing;
      each(2 * rows.size() + static_cast<std::size_t>(i),
           [&](const double* numbers) { logit = std::max(logit, numbers[0]); });
      rows[r].logits.push_back(static_cast<float>(logit));
    }
  }
  return rows;
}

}  // namespace magister
