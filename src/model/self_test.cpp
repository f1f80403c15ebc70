// The start-up self-test compares every fast path in use with plain ATen code on one small random block, before any
// work. Otherwise a wrong kernel, BLAS or CPU could produce a week of almost right numbers.
#include "model/self_test.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/transformer.h"

namespace magister {

PackedBatch self_test_batch(std::int64_t vocab_size) {
  std::vector<std::vector<TokenId>> sequences(2);
  for (int i = 0; i < 37; ++i) {
    sequences[i < 5 ? 0 : 1].push_back(static_cast<TokenId>((i * 7919 + 13) % vocab_size));
  }
  return pack_sequences(sequences);
}

at::Tensor self_test_block(std::int64_t rows, std::int64_t columns, at::Device device) {
  const at::Tensor index = at::arange(rows * columns, at::TensorOptions().dtype(at::kDouble).device(device));
  return at::sin(index * 12.9898 + at::sin(index * 0.37)).to(at::kFloat).view({rows, columns});
}

void compare_paths(const char* path, const at::Tensor& fast, const at::Tensor& plain, double tolerance,
                   const char* kernels) {
  // NaN or infinity in the weights is not a fault of the path, but both results must have them in the same places.
  const at::Tensor finite = at::isfinite(plain);
  MAGISTER_CHECK(
      at::equal(at::isfinite(fast), finite), ExitCode::kInternal,
      "self-test: the fast {} gives finite numbers in other places than plain code (kernels {}, CPU features {}; "
      "results would be wrong); try MAGISTER_CPU_KERNELS=avx2 or layout.devices: cpu, and report this machine",
      path, kernels, cpu_features());
  const at::Tensor zero = at::zeros({1}, plain.options());
  const double scale = std::max(1e-6, at::where(finite, plain, zero).abs().max().item<double>());
  const double difference = at::where(finite, fast - plain, zero).abs().max().item<double>() / scale;
  MAGISTER_CHECK(
      difference <= tolerance, ExitCode::kInternal,
      "self-test: the fast {} differs from plain code by {:.3g} of its range, more than {:.3g} (kernels "
      "{}, CPU features {}; results would be wrong); try MAGISTER_CPU_KERNELS=avx2 or layout.devices: cpu, and report "
      "this machine",
      path, difference, tolerance, kernels, cpu_features());
}

}  // namespace magister
