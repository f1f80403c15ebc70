// See gpu_head_loss.h.
#include "train/gpu_head_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "train/gpu_ops.h"

namespace magister {
namespace {

using Index = std::span<const std::int64_t>;

// exp(factor * logit - maximum) of a chunk, and its sum by row.
struct Exponentials {
  float factor = 1;
  at::Tensor maximum_R1, exp_RV, sum_R1;

  Exponentials() = default;
  Exponentials(const at::Tensor& logits_RV, float factor) : factor(factor) {
    maximum_R1 = logits_RV.amax(1, true);
    exp_RV = logits_RV - maximum_R1;
    if (factor != 1) {
      exp_RV.mul_(factor);
      maximum_R1.mul_(factor);
    }
    exp_RV.exp_();
    sum_R1 = exp_RV.sum(1, true);
  }
  // Becomes the gradient of every token.
  void multiply(const std::vector<float>& scales) {
    exp_RV.mul_(upload(at::tensor(scales, at::kFloat), exp_RV.device()).unsqueeze(1));
  }
};

class GpuHeadLoss {
 public:
  GpuHeadLoss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadRows& rows,
              const HeadLossOptions& options, bool sampled, double scale, at::Tensor& head_gradient_VD)
      : hidden_TD_(hidden_TD),
        head_(options.bf16 ? head_VD.to(at::kBFloat16) : head_VD),
        rows_(rows),
        options_(options),
        loss_(rows, options, head_VD.size(0), sampled, scale),
        head_gradient_VD_(head_gradient_VD),
        cap_(options.scaling.softcap) {}

  void run(HeadLossResult& result) {
    const std::int64_t step = gpu_head_rows(head_.size(0));
    const auto count = static_cast<std::int64_t>(rows_.index.size());
    for (std::int64_t begin = 0; begin < count; begin += step) {
      run_chunk(Index(rows_.index)
                    .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(step, count - begin))),
                result);
    }
  }

 private:
  void run_chunk(Index index, HeadLossResult& result) {
    const at::Tensor index_R = on_device(at::tensor(at::ArrayRef(index.data(), index.size()), at::kLong));
    at::Tensor hidden_RD = hidden_TD_.index_select(0, index_R);
    if (options_.scaling.multiplier != 1) hidden_RD.mul_(options_.scaling.multiplier);
    at::Tensor logits_RV = gpu_product(hidden_RD, head_.t(), options_.bf16);
    if (cap_ > 0) logits_RV.div_(cap_).tanh_().mul_(cap_);
    plain_ = Exponentials(logits_RV, 1);
    if (loss_.two()) tempered_ = Exponentials(logits_RV, loss_.tempered_factor());
    look_at_rows(index, logits_RV, result);
    if (!options_.gradient) return;
    const at::Tensor gradient_RV = gradient_of(logits_RV);
    if (head_gradient_VD_.defined() && options_.bf16) {
      head_gradient_VD_.add_(gpu_product(gradient_RV.t(), hidden_RD, true));
    } else if (head_gradient_VD_.defined()) {
      head_gradient_VD_.addmm_(gradient_RV.t(), hidden_RD);
    }
    at::Tensor back_RD = gpu_product(gradient_RV, head_, options_.bf16);
    if (options_.scaling.multiplier != 1) back_RD.mul_(options_.scaling.multiplier);
    result.hidden_gradient_TD.index_copy_(0, index_R, back_RD);
  }

  at::Tensor on_device(const at::Tensor& host) const { return upload(host, hidden_TD_.device()); }

  // The label and, of a distillation, the teacher's entries, which come last; padding looks at token 0.
  at::Tensor looked_at(Index index) const {
    const std::int64_t J = 1 + rows_.K, V = head_.size(0);
    at::Tensor ids_RJ = at::empty({static_cast<std::int64_t>(index.size()), J}, at::kLong);
    auto* out = ids_RJ.data_ptr<std::int64_t>();
    for (const std::int64_t t : index) {
      *out++ = rows_.labels[t];
      for (std::int64_t k = 0; k < rows_.K; ++k) {
        const std::int64_t id = rows_.ids_TK.const_data_ptr<std::int32_t>()[t * rows_.K + k];
        *out++ = id < 0 || id >= V ? 0 : id;
      }
    }
    return ids_RJ;
  }

  // What the host needs of a chunk comes in one copy: logits of the tokens that are looked at, maxima and sums.
  void look_at_rows(Index index, const at::Tensor& logits_RV, HeadLossResult& result) {
    specials_.clear();
    plain_scales_.clear();
    tempered_scales_.clear();
    const at::Tensor ids_RJ = looked_at(index);
    const std::int64_t J = ids_RJ.size(1);
    std::vector<at::Tensor> wanted = {logits_RV.gather(1, on_device(ids_RJ)), plain_.maximum_R1, plain_.sum_R1};
    if (loss_.two()) wanted.insert(wanted.end(), {tempered_.maximum_R1, tempered_.sum_R1});
    const at::Tensor numbers = download(at::cat(wanted, 1));
    const std::int64_t width = numbers.size(1);
    for (std::size_t r = 0; r < index.size(); ++r) {
      const float* const number = numbers.const_data_ptr<float>() + static_cast<std::int64_t>(r) * width;
      const RowSoftmax plain{plain_.factor, number[J], number[J + 1]};
      const RowSoftmax tempered = loss_.two() ? RowSoftmax{tempered_.factor, number[J + 2], number[J + 3]} : plain;
      const std::int64_t* const ids = ids_RJ.const_data_ptr<std::int64_t>() + static_cast<std::int64_t>(r) * J;
      // They are asked for in their order.
      std::int64_t at = 0;
      const auto logit = [&](std::int32_t id) {
        for (std::int64_t tried = 0; ids[at] != id; ++tried) {
          MAGISTER_ASSERT(tried < J);
          at = (at + 1) % J;
        }
        return number[at];
      };
      const std::size_t first = specials_.size();
      const RowSums row = loss_.row(index[r], plain, tempered, logit, static_cast<std::int32_t>(r), specials_);
      for (std::size_t i = first; i < specials_.size(); ++i) make_whole(specials_[i], row, plain, tempered, logit);
      result.label_logprob_T.data_ptr<float>()[index[r]] = row.label_logprob;
      result.loss += row.loss;
      result.lm += row.lm;
      result.distill += row.distill;
      result.num_teacher_rows += row.teacher;
      plain_scales_.push_back(static_cast<float>(row.plain / plain.sum));
      if (loss_.two()) tempered_scales_.push_back(static_cast<float>(row.tempered / tempered.sum));
    }
  }

  // What is to be added to a softmax's gradient becomes what stands in its place: no number is written twice.
  void make_whole(Special& special, const RowSums& row, const RowSoftmax& plain, const RowSoftmax& tempered,
                  const RowLoss::Logit& logit) const {
    if (!special.add) return;
    const float z = logit(special.id);
    double dense = row.plain * std::exp(plain.log_probability(z));
    if (loss_.two()) dense += row.tempered * std::exp(tempered.log_probability(z));
    special.value += static_cast<float>(dense * loss_.cap_derivative(z));
    special.add = false;
  }

  // By the logits before their cap; what they were is overwritten.
  at::Tensor gradient_of(at::Tensor& logits_RV) {
    plain_.multiply(plain_scales_);
    at::Tensor gradient_RV = std::move(plain_.exp_RV);
    if (loss_.two()) {
      tempered_.multiply(tempered_scales_);
      gradient_RV.add_(std::move(tempered_.exp_RV));
    }
    if (cap_ > 0) gradient_RV.mul_(logits_RV.div_(cap_).square_().neg_().add_(1));
    std::vector<std::int64_t> places;
    std::vector<float> values;
    for (const Special& special : specials_) {
      places.push_back(special.column * gradient_RV.size(1) + special.id);
      values.push_back(special.value);
    }
    if (!places.empty())
      gradient_RV.view({-1}).index_copy_(0, on_device(at::tensor(places, at::kLong)),
                                         on_device(at::tensor(values, at::kFloat)));
    return gradient_RV;
  }

  const at::Tensor& hidden_TD_;
  at::Tensor head_;  // [V, D], f32 or rounded once for all chunks
  const HeadRows& rows_;
  const HeadLossOptions& options_;
  RowLoss loss_;
  at::Tensor& head_gradient_VD_;
  double cap_;
  Exponentials plain_, tempered_;  // of the chunk
  std::vector<Special> specials_;
  std::vector<float> plain_scales_, tempered_scales_;  // by row: what makes gradients of exponentials
};

}  // namespace

void gpu_head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadRows& rows,
                   const HeadLossOptions& options, bool sampled, double scale, at::Tensor& head_gradient_VD,
                   HeadLossResult& result) {
  GpuHeadLoss(hidden_TD, head_VD, rows, options, sampled, scale, head_gradient_VD).run(result);
}

std::int64_t gpu_head_rows(std::int64_t vocab_size) {
  constexpr std::int64_t kNumbers = 1 << 26;  // 256 MiB
  return std::clamp<std::int64_t>(kNumbers / vocab_size, 128, 1024);
}

// Logits, exponentials at two temperatures, and what an operation makes beside them; hidden rows and their gradients.
std::uint64_t gpu_head_loss_bytes(std::int64_t rows, std::int64_t hidden_size, std::int64_t vocab_size) {
  const std::int64_t R = std::min(rows, gpu_head_rows(vocab_size));
  return sizeof(float) * static_cast<std::uint64_t>(R * (4 * vocab_size + 3 * hidden_size));
}

}  // namespace magister
