// See gpu_head_loss.h.
#include "train/gpu_head_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/upload.h"
#include "magister/parallel/thread_pool.h"
#include "train/gpu/head_kernels.h"
#include "train/gpu_numbers.h"
#include "train/gpu_ops.h"
#include "train/gpu_products.h"

namespace magister {
namespace {

using Index = std::span<const std::int64_t>;

// A copy on the host of what a device computes; nothing waits for it until it is read.
class Coming {
 public:
  Coming() = default;
  explicit Coming(const at::Tensor& there) : here_(there) {
    if (there.is_cpu()) return;
    here_ = at::empty(there.sizes(), there.options().device(at::kCPU).pinned_memory(true));
    here_.copy_(there, /*non_blocking=*/true);
    event_ = GpuEvent::record();
  }
  const at::Tensor& wait() const {
    event_.wait();
    return here_;
  }

 private:
  at::Tensor here_;
  GpuEvent event_;
};

class GpuHeadLoss {
 public:
  GpuHeadLoss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadRows& rows,
              const HeadLossOptions& options, bool sampled, double scale, at::Tensor& head_gradient_VD,
              ThreadPool* pool)
      : hidden_TD_(hidden_TD),
        head_(options.bf16 ? head_VD.to(at::kBFloat16) : head_VD),
        rows_(rows),
        options_(options),
        loss_(rows, options, head_VD.size(0), sampled, scale),
        head_gradient_VD_(head_gradient_VD),
        cap_(options.scaling.softcap),
        V_(head_VD.size(0)),
        J_(1 + rows.K),
        pool_(pool) {}

  // The next chunk's logits are begun before the host looks at this chunk's, so the device does not wait for the host.
  void run(HeadLossResult& result) {
    const std::int64_t step = gpu_head_rows(V_), count = static_cast<std::int64_t>(rows_.index.size());
    gather_rows();
    Chunk before;
    for (std::int64_t begin = 0; begin < count; begin += step) {
      Chunk next = begin_chunk(begin, std::min(step, count - begin));
      if (before.size > 0) finish_chunk(before, result);
      before = std::move(next);
    }
    finish_chunk(before, result);
    if (options_.gradient) result.hidden_gradient_TD = in_place_of_all_rows();
  }

 private:
  struct Chunk {
    std::int64_t begin = 0, size = 0;  // among the rows with a label
    at::Tensor hidden_RD, logits_RV, numbers_RN;
    Coming numbers;
  };

  // Gathers, for all rows with a label, the hidden states in the form that products take, and the tokens whose logits
  // are needed.
  void gather_rows() {
    const Index index(rows_.index);
    hidden_ND_ = hidden_TD_.index_select(0, on_device(at::tensor(at::ArrayRef(index.data(), index.size()), at::kLong)));
    if (options_.scaling.multiplier != 1) hidden_ND_.mul_(options_.scaling.multiplier);
    if (options_.bf16) hidden_ND_ = hidden_ND_.to(at::kBFloat16);
    ids_NJ_ = looked_at(index);
    ids_on_device_NJ_ = on_device(ids_NJ_);
    if (options_.gradient) {
      const auto N = static_cast<std::int64_t>(index.size());
      back_ND_ = at::empty({N + 1, hidden_TD_.size(1)}, hidden_TD_.options());
      back_ND_[N].zero_();
    }
  }

  Chunk begin_chunk(std::int64_t begin, std::int64_t size) const {
    Chunk chunk{begin, size, hidden_ND_.narrow(0, begin, size), {}, {}, {}};
    chunk.logits_RV = gpu_product(chunk.hidden_RD, head_.t(), options_.bf16);
    chunk.numbers_RN = at::empty({size, gpu::RowNumbers::kFirst + J_}, hidden_TD_.options());
    start(gpu::RowNumbers{numbers<float>(chunk.logits_RV), numbers<const std::int32_t>(ids_on_device_NJ_) + begin * J_,
                          numbers<float>(chunk.numbers_RN), size, V_, J_, loss_.tempered_factor(),
                          static_cast<float>(cap_), eight()},
          queue_at(chunk.logits_RV));
    chunk.numbers = Coming(chunk.numbers_RN);
    return chunk;
  }

  void finish_chunk(Chunk& chunk, HeadLossResult& result) {
    look_at_rows(chunk, result);
    if (!options_.gradient) return;
    const at::Tensor gradient_RV =
        options_.bf16 ? gradient_of<gpu::Bf16>(chunk, at::empty(chunk.logits_RV.sizes(), head_.options()))
                      : gradient_of<float>(chunk, chunk.logits_RV);
    chunk.logits_RV.reset();
    if (head_gradient_VD_.defined()) gpu_add_product(gradient_RV.t(), chunk.hidden_RD, head_gradient_VD_);
    gpu_product_into(gradient_RV, head_, back_ND_.narrow(0, chunk.begin, chunk.size));
  }

  bool eight() const { return V_ % 8 == 0; }
  at::Tensor on_device(const at::Tensor& host) const { return upload(host, hidden_TD_.device()); }

  // A row without a label gets the zeros after the others.
  at::Tensor in_place_of_all_rows() const {
    const std::int64_t T = hidden_TD_.size(0);
    std::vector<std::int64_t> from(static_cast<std::size_t>(T), static_cast<std::int64_t>(rows_.index.size()));
    for (std::size_t i = 0; i < rows_.index.size(); ++i)
      from[static_cast<std::size_t>(rows_.index[i])] = static_cast<std::int64_t>(i);
    at::Tensor all_TD = back_ND_.index_select(0, on_device(at::tensor(from, at::kLong)));
    if (options_.scaling.multiplier != 1) all_TD.mul_(options_.scaling.multiplier);
    return all_TD;
  }

  // The label and, with distillation, the teacher's entries after it; padding reads token 0.
  at::Tensor looked_at(Index index) const {
    at::Tensor ids_NJ = at::empty({static_cast<std::int64_t>(index.size()), J_}, at::kInt);
    auto* out = ids_NJ.data_ptr<std::int32_t>();
    for (const std::int64_t t : index) {
      *out++ = static_cast<std::int32_t>(rows_.labels[t]);
      for (std::int64_t k = 0; k < rows_.K; ++k) {
        const std::int32_t id = rows_.ids_TK.const_data_ptr<std::int32_t>()[t * rows_.K + k];
        *out++ = id < 0 || id >= V_ ? 0 : id;
      }
    }
    return ids_NJ;
  }

  // Computes losses, and what makes gradients of logits: scales by row, and the gradients of special tokens. A
  // teacher's row takes the host some microseconds, so slices of rows run on the pool's threads and are joined in their
  // order.
  void look_at_rows(const Chunk& chunk, HeadLossResult& result) {
    const std::int64_t num_slices = (chunk.size + kSliceRows - 1) / kSliceRows;
    const at::Tensor& numbers_RN = chunk.numbers.wait();
    sums_.resize(static_cast<std::size_t>(chunk.size));
    scales_.resize(static_cast<std::size_t>(2 * chunk.size));
    slices_.resize(static_cast<std::size_t>(num_slices));
    on_threads(pool_, num_slices, [&](std::int64_t slice) { look_at_slice(chunk, numbers_RN, slice); });
    places_.clear();
    values_.clear();
    for (const Specials& slice : slices_) {
      places_.insert(places_.end(), slice.places.begin(), slice.places.end());
      values_.insert(values_.end(), slice.values.begin(), slice.values.end());
    }
    for (std::int64_t r = 0; r < chunk.size; ++r) {
      const RowSums& row = sums_[static_cast<std::size_t>(r)];
      result.label_logprob_T.data_ptr<float>()[rows_.index[static_cast<std::size_t>(chunk.begin + r)]] =
          row.label_logprob;
      result.loss += row.loss;
      result.lm += row.lm;
      result.distill += row.distill;
      result.num_teacher_rows += row.teacher;
    }
  }

  void look_at_slice(const Chunk& chunk, const at::Tensor& numbers_RN, std::int64_t slice) {
    Specials& out = slices_[static_cast<std::size_t>(slice)];
    out.places.clear();
    out.values.clear();
    const std::int64_t end = std::min(chunk.size, (slice + 1) * kSliceRows);
    std::vector<Special> specials;
    for (std::int64_t r = slice * kSliceRows; r < end; ++r) {
      const float* const number = numbers_RN.const_data_ptr<float>() + r * (gpu::RowNumbers::kFirst + J_);
      const RowSoftmax plain{1, number[0], number[1]};
      const float factor = loss_.tempered_factor();
      const RowSoftmax tempered = loss_.two() ? RowSoftmax{factor, factor * number[0], number[2]} : plain;
      const std::int32_t* const ids = ids_NJ_.const_data_ptr<std::int32_t>() + (chunk.begin + r) * J_;
      // The logits are asked for in the order of ids.
      std::int64_t at = 0;
      const auto logit = [&](std::int32_t id) {
        for (std::int64_t tried = 0; ids[at] != id; ++tried) {
          MAGISTER_ASSERT(tried < J_);
          at = (at + 1) % J_;
        }
        return number[gpu::RowNumbers::kFirst + at];
      };
      specials.clear();
      const RowSums row = loss_.row(rows_.index[static_cast<std::size_t>(chunk.begin + r)], plain, tempered, logit,
                                    static_cast<std::int32_t>(r), specials);
      for (const Special& special : specials) {
        out.places.push_back(r * V_ + special.id);
        out.values.push_back(whole(special, row, plain, tempered, logit));
      }
      sums_[static_cast<std::size_t>(r)] = row;
      scales_[static_cast<std::size_t>(2 * r)] = static_cast<float>(row.plain / plain.sum);
      scales_[static_cast<std::size_t>(2 * r + 1)] = static_cast<float>(row.tempered / tempered.sum);
    }
  }

  // Turns a number that is added to a softmax's gradient into one that replaces it, so that no number is written twice.
  float whole(const Special& special, const RowSums& row, const RowSoftmax& plain, const RowSoftmax& tempered,
              const RowLoss::Logit& logit) const {
    if (!special.add) return special.value;
    const float z = logit(special.id);
    double dense = row.plain * std::exp(plain.log_probability(z));
    if (loss_.two()) dense += row.tempered * std::exp(tempered.log_probability(z));
    return special.value + static_cast<float>(dense * loss_.cap_derivative(z));
  }

  // The gradient by the logits before their soft cap.
  template <typename G>
  at::Tensor gradient_of(const Chunk& chunk, at::Tensor gradient_RV) const {
    const gpu::Queue queue = queue_at(gradient_RV);
    const at::Tensor scales = on_device(at::tensor(scales_, at::kFloat));
    start(
        gpu::LogitGradient<G>{numbers<const float>(chunk.logits_RV), numbers<const float>(chunk.numbers_RN),
                              numbers<const float>(scales), numbers<G>(gradient_RV), chunk.size, V_,
                              gpu::RowNumbers::kFirst + J_, loss_.tempered_factor(), static_cast<float>(cap_), eight()},
        queue);
    if (places_.empty()) return gradient_RV;
    const at::Tensor places = on_device(at::tensor(places_, at::kLong)),
                     values = on_device(at::tensor(values_, at::kFloat));
    start(gpu::PlaceNumbers<G>{numbers<const std::int64_t>(places), numbers<const float>(values),
                               numbers<G>(gradient_RV), places.numel()},
          queue);
    return gradient_RV;
  }

  const at::Tensor& hidden_TD_;
  at::Tensor head_;  // [V, D], f32 or rounded once for all chunks
  const HeadRows& rows_;
  const HeadLossOptions& options_;
  RowLoss loss_;
  at::Tensor& head_gradient_VD_;
  double cap_;
  std::int64_t V_, J_;
  // For the rows with a label: hidden states as products take them; their gradients, then a row of zeros.
  at::Tensor hidden_ND_, back_ND_;
  at::Tensor ids_NJ_, ids_on_device_NJ_;  // i32, on the host and on the device
  ThreadPool* pool_;
  // The current chunk: losses and scales of two softmaxes, by row; gradients of special tokens, by slice and all
  // together.
  struct Specials {
    std::vector<std::int64_t> places;  // in the chunk's logits
    std::vector<float> values;
  };
  static constexpr std::int64_t kSliceRows = 64;
  std::vector<RowSums> sums_;
  std::vector<float> scales_;
  std::vector<Specials> slices_;
  std::vector<std::int64_t> places_;
  std::vector<float> values_;
};

}  // namespace

void gpu_head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadRows& rows,
                   const HeadLossOptions& options, bool sampled, double scale, at::Tensor& head_gradient_VD,
                   HeadLossResult& result, ThreadPool* pool) {
  GpuHeadLoss(hidden_TD, head_VD, rows, options, sampled, scale, head_gradient_VD, pool).run(result);
}

std::int64_t gpu_head_rows(std::int64_t vocab_size) {
  constexpr std::int64_t kNumbers = 1 << 27;  // half a GiB
  return std::clamp<std::int64_t>(kNumbers / vocab_size / 128 * 128, 128, 1024);
}

// Logits of two chunks and the gradient of one; hidden rows, their rounded copies, and their gradients.
std::uint64_t gpu_head_loss_bytes(std::int64_t rows, std::int64_t hidden_size, std::int64_t vocab_size) {
  const std::int64_t R = std::min(rows, gpu_head_rows(vocab_size)), two = std::min(rows, 2 * R);
  return sizeof(float) * static_cast<std::uint64_t>((two + R) * vocab_size + 3 * rows * hidden_size);
}

}  // namespace magister
