// AltUp and Laurel on the fast path and in plain ATen code.
#include "model/cpu/altup.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/decoder_layer.h"

namespace magister {
namespace {

constexpr float kLeastSquare = 1e-5f;  // of a product whose mean square becomes another

float mean_square(const float* x_D, std::int64_t D) {
  double sum = 0;
  for (std::int64_t d = 0; d < D; ++d) sum += static_cast<double>(x_D[d]) * x_D[d];
  return static_cast<float>(sum / static_cast<double>(D));
}

// Scales x_D, so that its mean square becomes that of like_D.
void match(float* x_D, const float* like_D, std::int64_t D) {
  const float factor = std::sqrt(mean_square(like_D, D)) / std::sqrt(std::max(mean_square(x_D, D), kLeastSquare));
  cpu_kernels().scale(x_D, factor, D);
}

at::Tensor plain_match(const at::Tensor& x_TD, const at::Tensor& like_TD) {
  return x_TD * like_TD.square().mean(-1, true).sqrt() / x_TD.square().mean(-1, true).clamp_min(kLeastSquare).sqrt();
}

}  // namespace

std::vector<float> AltUp::modalities(const float* x_RD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
                                     ThreadPool* pool) const {
  std::vector<float> out_RA(static_cast<std::size_t>(rows * inputs));
  const float* normed_RD = block_input({router_norm_D, {}}, eps, x_RD, scratch, rows, D);
  linear_tile(normed_RD, D, rows, router, out_RA.data(), inputs, false, pool);
  for (float& number : out_RA) number = std::tanh(number);
  return out_RA;
}

void AltUp::predict(float* streams_RAD, float* hidden_RD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
                    ThreadPool* pool) const {
  const std::int64_t A = inputs;
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(streams_RAD + (r * A + active) * D, D, hidden_RD + r * D);
  const std::vector<float> modality_RA = modalities(hidden_RD, rows, D, eps, scratch, pool);
  const float* weights = prediction_AAA.const_data_ptr<float>();
  std::vector<float> before_AD(static_cast<std::size_t>(A * D));
  for (std::int64_t r = 0; r < rows; ++r) {
    float* streams_AD = streams_RAD + r * A * D;
    std::copy_n(streams_AD, A * D, before_AD.data());
    for (std::int64_t o = 0; o < A; ++o) {
      for (std::int64_t i = 0; i < A; ++i) {
        float part = 0;
        for (std::int64_t m = 0; m < A; ++m)
          part += weights[(o * A + i) * A + m] * modality_RA[static_cast<std::size_t>(r * A + m)];
        const float* from_D = before_AD.data() + i * D;
        float* to_D = streams_AD + o * D;
        for (std::int64_t d = 0; d < D; ++d) to_D[d] += part * from_D[d];
      }
    }
    std::copy_n(streams_AD + active * D, D, hidden_RD + r * D);
  }
}

void AltUp::correct(float* hidden_RD, float* streams_RAD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
                    ThreadPool* pool) const {
  const std::int64_t A = inputs;
  const std::vector<float> modality_RA = modalities(hidden_RD, rows, D, eps, scratch, pool);
  const float* weights = correction_AA.const_data_ptr<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    float *streams_AD = streams_RAD + r * A * D, *hidden_D = hidden_RD + r * D;
    for (std::int64_t d = 0; d < D; ++d) hidden_D[d] -= streams_AD[active * D + d];
    for (std::int64_t o = 0; o < A; ++o) {
      float part = 0;
      for (std::int64_t m = 0; m < A; ++m)
        part += weights[o * A + m] * modality_RA[static_cast<std::size_t>(r * A + m)];
      part += 1.0f;
      for (std::int64_t d = 0; d < D; ++d) streams_AD[o * D + d] += hidden_D[d] * part;
    }
    std::copy_n(streams_AD + active * D, D, hidden_D);
    if (!scale_D.defined()) continue;
    const float* scale = scale_D.const_data_ptr<float>();
    for (std::int64_t d = 0; d < D; ++d) hidden_D[d] *= scale[d];
  }
}

at::Tensor AltUp::plain_modalities(const at::Tensor& x_TD, double eps) const {
  return at::tanh(at::mm(plain_input({router_norm_D, {}}, x_TD, eps), router.plain_weight().t()));
}

at::Tensor AltUp::plain_predict(const at::Tensor& streams_TAD, double eps) const {
  const at::Tensor modality_TA = plain_modalities(streams_TAD.select(1, active), eps);
  const at::Tensor parts_TAA = at::mm(modality_TA, prediction_AAA.t()).view({-1, inputs, inputs});
  return streams_TAD + at::bmm(parts_TAA, streams_TAD);
}

at::Tensor AltUp::plain_correct(const at::Tensor& predicted_TAD, const at::Tensor& activated_TD, double eps) const {
  const at::Tensor parts_TA = at::mm(plain_modalities(activated_TD, eps), correction_AA.t()) + 1;
  const at::Tensor change_TD = activated_TD - predicted_TAD.select(1, active);
  return predicted_TAD + parts_TA.unsqueeze(2) * change_TD.unsqueeze(1);
}

void AltUpEnds::spread(const float* hidden_RD, float* streams_RAD, std::int64_t rows, std::int64_t D,
                       ThreadPool* pool) const {
  const std::int64_t A = inputs();
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(hidden_RD + r * D, D, streams_RAD + r * A * D);
  for (std::int64_t i = 1; i < A; ++i) {
    linear_tile(hidden_RD, D, rows, projections[static_cast<std::size_t>(i - 1)], streams_RAD + i * D, A * D, false,
                pool);
    for (std::int64_t r = 0; r < rows; ++r) match(streams_RAD + (r * A + i) * D, hidden_RD + r * D, D);
  }
}

void AltUpEnds::join(const float* streams_RAD, float* hidden_RD, std::int64_t rows, std::int64_t D, float* scratch,
                     ThreadPool* pool) const {
  const std::int64_t A = inputs();
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(streams_RAD + r * A * D, D, hidden_RD + r * D);
  for (std::int64_t i = 1; i < A; ++i) {
    linear_tile(streams_RAD + i * D, A * D, rows, unembeddings[static_cast<std::size_t>(i - 1)], scratch, D, false,
                pool);
    for (std::int64_t r = 0; r < rows; ++r) {
      match(scratch + r * D, streams_RAD + r * A * D, D);
      for (std::int64_t d = 0; d < D; ++d) hidden_RD[r * D + d] += scratch[r * D + d];
    }
  }
  cpu_kernels().scale(hidden_RD, 1.0f / static_cast<float>(A), rows * D);
}

at::Tensor AltUpEnds::plain_spread(const at::Tensor& hidden_TD) const {
  std::vector<at::Tensor> streams = {hidden_TD};
  for (const Linear& product : projections)
    streams.push_back(plain_match(plain_product(hidden_TD, product), hidden_TD));
  return at::stack(streams, 1);
}

at::Tensor AltUpEnds::plain_join(const at::Tensor& streams_TAD) const {
  const at::Tensor first_TD = streams_TAD.select(1, 0);
  at::Tensor sum_TD = first_TD;
  for (std::int64_t i = 1; i < inputs(); ++i)
    sum_TD =
        sum_TD +
        plain_match(plain_product(streams_TAD.select(1, i), unembeddings[static_cast<std::size_t>(i - 1)]), first_TD);
  return sum_TD / inputs();
}

void Laurel::run(const BlockNorms& attention, float* hidden_RD, std::int64_t rows, std::int64_t D, float eps,
                 float* scratch, ThreadPool* pool) const {
  const std::int64_t rank = left.out_features();
  float *normed_RD = scratch, *short_Rr = normed_RD + rows * D, *out_RD = short_Rr + rows * rank;
  const float* input_RD = block_input(attention, eps, hidden_RD, normed_RD, rows, D);
  linear_tile(input_RD, D, rows, left, short_Rr, rank, false, pool);
  linear_tile(short_Rr, rank, rows, right, out_RD, D, false, pool);
  cpu_kernels().rms_norm(out_RD, D, norm_D.const_data_ptr<float>(), eps, out_RD, D, rows, D);
  for (std::int64_t i = 0; i < rows * D; ++i) hidden_RD[i] += input_RD[i] + out_RD[i];
}

at::Tensor Laurel::reference(const BlockNorms& attention, const at::Tensor& hidden_TD, double eps) const {
  const at::Tensor input_TD = plain_input(attention, hidden_TD, eps);
  return input_TD + plain_input({norm_D, {}}, plain_product(plain_product(input_TD, left), right), eps);
}

}  // namespace magister
