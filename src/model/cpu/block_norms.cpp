// RMS norms with the CPU kernels. A layer norm is an RMS norm of rows whose mean has been subtracted.
#include "model/cpu/block_norms.h"

#include <ATen/ATen.h>

#include "magister/model/cpu/cpu_kernels.h"

namespace magister {

namespace {

void subtract_means(const float* x_RD, float* out_RD, std::int64_t rows, std::int64_t D) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t d = 0; d < D; ++d) sum += x_RD[r * D + d];
    const auto mean = static_cast<float>(sum / static_cast<double>(D));
    for (std::int64_t d = 0; d < D; ++d) out_RD[r * D + d] = x_RD[r * D + d] - mean;
  }
}

}  // namespace

const float* block_input(const BlockNorms& norms, float eps, const float* x_RD, float* scratch_RD, std::int64_t rows,
                         std::int64_t D) {
  if (!norms.input_D.defined()) return x_RD;
  if (norms.centred) {
    subtract_means(x_RD, scratch_RD, rows, D);
    x_RD = scratch_RD;
  }
  cpu_kernels().rms_norm(x_RD, D, norms.input_D.const_data_ptr<float>(), eps, scratch_RD, D, rows, D);
  if (norms.input_bias_D.defined())
    cpu_kernels().add_bias(scratch_RD, D, norms.input_bias_D.const_data_ptr<float>(), rows, D);
  return scratch_RD;
}

void add_block_output(const BlockNorms& norms, float eps, float* out_RD, float* hidden_RD, std::int64_t rows,
                      std::int64_t D) {
  if (norms.output_D.defined()) {
    cpu_kernels().rms_norm(out_RD, D, norms.output_D.const_data_ptr<float>(), eps, out_RD, D, rows, D);
  }
  for (std::int64_t i = 0; i < rows * D; ++i) hidden_RD[i] += out_RD[i];
}

}  // namespace magister
