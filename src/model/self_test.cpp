// The start-up self-test: every fast path in use against plain ATen code on one small random block, before any work.
// A wrong kernel, BLAS or CPU would otherwise write a week of almost right numbers.
#include "model/self_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/transformer.h"
#include "model/transformer_layers.h"

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
  // Weights with NaN or infinity are not a fault of the path: both must give no finite number in the same places.
  const at::Tensor finite = at::isfinite(plain);
  MAGISTER_CHECK(at::equal(at::isfinite(fast), finite), ExitCode::kInternal,
                 "self-test: the fast {} gives finite numbers in other places than plain code (kernels {}, CPU "
                 "features {}; results would be "
                 "wrong); try MAGISTER_CPU_KERNELS=avx2 or layout.devices: cpu, and report this machine",
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

void Transformer::self_test() {
  if (layers_->gpu) return layers_->gpu->self_test();
  const auto compare = [](const char* path, const at::Tensor& fast, const at::Tensor& plain, double limit) {
    compare_paths(path, fast, plain, limit, cpu_kernels().name);
  };
  const DecoderLayer& layer = layers_->decoder.front();
  const LayerShape& shape = layer.shape();
  const PackedBatch batch = self_test_batch(layers_->config.vocab_size);
  const std::int64_t T = batch.num_tokens(), D = shape.hidden_size;
  const RopeTables tables = layers_->rope_tables(batch);
  const at::Tensor hidden_TD = self_test_block(T, D);
  const bool exact = layer.weights().qkv_proj.dtype() == at::kFloat;
  const double tolerance = exact ? 1e-4 : 4e-2;  // of the range: fp32 sums in another order; bf16 has 8 bits

  const BatchPages pages(batch);
  LayerBuffers buffers(batch, pages.sequences, shape, layers_->pool->num_threads());
  KvPages kv(shape.kv_heads, pages.num_pages(), shape.head_dim);
  at::Tensor attention_TD = at::empty({T, D}, at::kFloat), mlp_TD = at::empty({T, D}, at::kFloat);
  layer.project_qkv(hidden_TD.const_data_ptr<float>(), batch, 0, T, tables.rows, kv, buffers, 0);
  for (const AttentionTile& tile : attention_tiles(batch, shape)) layer.attend(tile, kv, buffers, 0);
  layer.project_output(0, T, buffers, attention_TD.data_ptr<float>(), false);
  layer.mlp(hidden_TD.const_data_ptr<float>(), 0, T, buffers, 0, mlp_TD.data_ptr<float>(), false);
  compare("attention", attention_TD,
          layer.reference_attention(hidden_TD, batch, tables.gather_cos(), tables.gather_sin()), tolerance);
  compare("MLP", mlp_TD, layer.reference_mlp(hidden_TD), tolerance);

  const std::int64_t columns = std::min<std::int64_t>(layers_->lm_head.projection.out_features(), 1000);
  const Linear head = layers_->lm_head.projection.outputs(0, columns);
  at::Tensor logits_Tc = at::empty({T, columns}, at::kFloat);
  linear_tile(hidden_TD.const_data_ptr<float>(), D, T, head, logits_Tc.data_ptr<float>(), columns, false);
  const at::Tensor plain_Tc = at::mm(hidden_TD.to(at::kDouble), head.plain_weight().to(at::kDouble).t()).to(at::kFloat);
  compare("head product", logits_Tc, plain_Tc, tolerance);
  for (std::int64_t t : {std::int64_t{0}, T - 1}) {
    SoftmaxState state;
    const at::Tensor row_c = at::nan_to_num(plain_Tc[t], 0.0, 0.0, 0.0);
    const float* row = row_c.const_data_ptr<float>();
    for (std::int64_t begin = 0; begin < columns; begin += 333) {
      cpu_kernels().logsumexp_step(row + begin, std::min<std::int64_t>(333, columns - begin), &state);
    }
    const double plain = at::logsumexp(row_c.to(at::kDouble), {0}).item<double>();
    compare("log-sum-exp", at::tensor({state.maximum + std::log(state.sum)}, at::kDouble),
            at::tensor({plain}, at::kDouble), 1e-5);
  }
}

}  // namespace magister
