// The parts of CpuModel's pass around the blocks of a layer: vectors by layer, factors, AltUp, and MLPs whose gates are
// compared with their mean over all shards.
#include <ATen/ATen.h>

#include <algorithm>

#include "model/cpu/cpu_model.h"
#include "model/cpu/cpu_pass.h"

namespace magister {

void CpuModel::run_tail(const DecoderLayer& layer, std::size_t number, Pass& pass) {
  if (layer.altup.is_on()) return correct_stream(layer, number, pass);
  if (!layer.tail.is_on()) return;
  const std::int64_t D = pass.hidden_TD.size(1), P = weights_.per_layer.width, all = weights_.per_layer.layers * P;
  const float* vectors = layer.tail.adds() ? pass.vectors_TNP.const_data_ptr<float>() : nullptr;
  for_row_tiles(pool_, pass.num_rows(), [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    layer.tail.run(pass.hidden() + begin * D, vectors + begin * all + static_cast<std::int64_t>(number) * P, all,
                   end - begin, D, layer.shape().rms_norm_eps, pass.buffers.scratch_of(thread), shared);
  });
}

void CpuModel::compute_per_layer(Pass& pass) {
  if (!weights_.per_layer.is_on()) return;
  const std::int64_t T = pass.num_rows();
  pass.vectors_TNP = at::empty({T, weights_.per_layer.layers * weights_.per_layer.width}, at::kFloat);
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool* shared) {
    weights_.per_layer.compute(pass.hidden(), pass.batch, begin, end, weights_.decoder.front().shape().rms_norm_eps,
                               pass.vectors_TNP.data_ptr<float>(), shared);
  });
  if (group_.tp_size() > 1) group_.all_reduce_sum(pass.vectors_TNP);
}

void CpuModel::begin_stream(Pass& pass) {
  if (!weights_.config.altup) return;
  const std::int64_t T = pass.num_rows(), D = pass.hidden_TD.size(1), A = weights_.altup_ends.inputs();
  pass.streams_TAD = at::empty({T, A, D}, at::kFloat);
  for_row_tiles(pool_, T, [&](std::int64_t begin, std::int64_t end, int, ThreadPool* shared) {
    weights_.altup_ends.spread(pass.hidden() + begin * D, pass.streams(begin), end - begin, D, shared);
  });
}

void CpuModel::predict_stream(const DecoderLayer& layer, Pass& pass) {
  if (!layer.altup.is_on()) return;
  const std::int64_t D = pass.hidden_TD.size(1);
  for_row_tiles(pool_, pass.num_rows(), [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    layer.altup.predict(pass.streams(begin), pass.hidden() + begin * D, end - begin, D, layer.shape().rms_norm_eps,
                        pass.buffers.scratch_of(thread), shared);
  });
}

// All vectors but the first get the layer's addend, whichever is active.
void CpuModel::correct_stream(const DecoderLayer& layer, std::size_t number, Pass& pass) {
  const std::int64_t D = pass.hidden_TD.size(1), A = layer.altup.inputs, P = weights_.per_layer.width,
                     all = weights_.per_layer.layers * P;
  const float eps = layer.shape().rms_norm_eps;
  const float* vectors = pass.vectors_TNP.const_data_ptr<float>() + static_cast<std::int64_t>(number) * P;
  for_row_tiles(pool_, pass.num_rows(), [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    float *scratch = pass.buffers.scratch_of(thread), *hidden_RD = pass.hidden() + begin * D;
    layer.altup.correct(hidden_RD, pass.streams(begin), end - begin, D, eps, scratch, shared);
    const float* addend_RD =
        layer.tail.addend(hidden_RD, vectors + begin * all, all, end - begin, D, eps, scratch, shared);
    for (std::int64_t r = 0; r < end - begin; ++r) {
      float* streams_AD = pass.streams(begin + r);
      for (std::int64_t a = 1; a < A; ++a) {
        for (std::int64_t d = 0; d < D; ++d) streams_AD[a * D + d] += addend_RD[r * D + d];
      }
    }
  });
}

void CpuModel::end_stream(Pass& pass) {
  if (!pass.streams_TAD.defined()) return;
  const std::int64_t D = pass.hidden_TD.size(1);
  for_row_tiles(pool_, pass.num_rows(), [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
    weights_.altup_ends.join(pass.streams(begin), pass.hidden() + begin * D, end - begin, D,
                             pass.buffers.scratch_of(thread), shared);
  });
}

void CpuModel::run_thinned(const FeedForward& mlp, Pass& pass) {
  const std::int64_t T = pass.num_rows(), width = 2 * mlp.columns(), most = std::min(T, kThinnedRows);
  if (!pass.gates_RF2.defined() || pass.gates_RF2.size(1) != width)
    pass.gates_RF2 = at::empty({most, width}, at::kFloat);
  float* gates_RF2 = pass.gates_RF2.data_ptr<float>();
  for (std::int64_t first = 0; first < T; first += kThinnedRows) {
    const std::int64_t rows = std::min(kThinnedRows, T - first);
    at::Tensor sums_R2 = at::empty({rows, 2}, at::kDouble);
    auto* sums = sums_R2.data_ptr<double>();
    for_row_tiles(pool_, rows, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
      mlp.project(pass.hidden(), first + begin, first + end, pass.buffers, thread, gates_RF2 + begin * width,
                  sums + 2 * begin, shared);
    });
    group_.all_reduce_sum(sums_R2);
    for_row_tiles(pool_, rows, [&](std::int64_t begin, std::int64_t end, int thread, ThreadPool* shared) {
      mlp.finish(gates_RF2 + begin * width, sums + 2 * begin, first + begin, first + end, pass.buffers, thread,
                 pass.partial(), shared);
    });
  }
}

}  // namespace magister
