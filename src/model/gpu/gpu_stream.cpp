// The parts of GpuModel's pass around the blocks of a layer: vectors by layer, AltUp, Laurel, and MLPs whose gates are
// compared with their mean over all shards; and their weights. The CPU's counterpart is cpu_stream.cpp.
#include "model/gpu/gpu_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "model/gpu/altup_end_kernels.h"
#include "model/gpu/altup_kernels.h"
#include "model/gpu/gpu_model.h"
#include "model/gpu/per_layer_kernels.h"

namespace magister::gpu {
namespace {

using Names = TensorNames::Layer;

GpuLinear plain_linear(const at::Tensor& weight_NK) {
  GpuLinear linear;
  linear.weight_NK = weight_NK;
  linear.outputs = weight_NK.size(0);
  linear.inputs = weight_NK.size(1);
  return linear;
}

float scale_of_table(const ModelConfig& config, at::ScalarType dtype) {
  const double root = std::sqrt(static_cast<double>(config.per_layer_width));
  return at::scalar_tensor(root, dtype).to(at::kFloat).item<float>();
}

AltUpStep step_of(const ModelConfig& config, const GpuStreamLayer& layer, const at::Tensor& coefficients) {
  return {layer.router_AD.const_data_ptr<float>(),
          layer.router_norm_D.const_data_ptr<float>(),
          coefficients.const_data_ptr<float>(),
          config.altup->inputs,
          config.hidden_size,
          config.altup->active,
          static_cast<float>(config.rms_norm_eps)};
}

}  // namespace

std::vector<const GpuLinear*> GpuStreamLayer::products() const {
  std::vector<const GpuLinear*> all;
  if (has_vectors()) all.insert(all.end(), {&per_layer_gate, &per_layer_output});
  if (has_laurel()) all.insert(all.end(), {&laurel_left, &laurel_right});
  return all;
}

std::uint64_t GpuStreamLayer::num_bytes() const {
  return bytes_of({per_layer_norm_D, laurel_norm_D, router_AD, router_norm_D, prediction_AAA, correction_AA, scale_D});
}

GpuStreamLayer GpuStreamLayer::load(WeightSource& source, std::int64_t layer, const ModelConfig& config,
                                    at::Device device, const MakeLinear& make) {
  const auto vector = [&](std::string Names::* name) {
    const at::Tensor whole = source.load_layer_whole(layer, name);
    return whole.defined() ? whole.to(device) : whole;
  };
  GpuStreamLayer out;
  out.per_layer_norm_D = vector(&Names::per_layer_output_norm);
  if (out.has_vectors()) {
    out.per_layer_gate = make(source.load_layer_product(layer, &Names::per_layer_gate));
    out.per_layer_output = make(source.load_layer_product(layer, &Names::per_layer_output));
  }
  out.laurel_norm_D = vector(&Names::laurel_norm);
  if (out.has_laurel()) {
    out.laurel_left = make(source.load_layer_product(layer, &Names::laurel_left));
    out.laurel_right = make(source.load_layer_product(layer, &Names::laurel_right));
  }
  if (!config.altup) return out;
  out.router_AD = vector(&Names::altup_router);
  out.router_norm_D = vector(&Names::altup_router_norm) / static_cast<double>(config.hidden_size);
  out.prediction_AAA = vector(&Names::altup_prediction);
  out.correction_AA = vector(&Names::altup_correction);
  const at::Tensor scale_D = vector(&Names::altup_scale);
  if (config.altup->scales_corrected) out.scale_D = scale_D;
  return out;
}

GpuStreamLayer GpuStreamLayer::random(const ModelConfig& config, const std::function<at::Tensor(at::IntArrayRef)>& made,
                                      const std::function<GpuLinear(std::int64_t, std::int64_t)>& product) {
  const std::int64_t D = config.hidden_size, P = config.per_layer_width, rank = config.laurel_rank;
  GpuStreamLayer out;
  if (P > 0) {
    out.per_layer_norm_D = made({D});
    out.per_layer_gate = product(P, D);
    out.per_layer_output = product(D, P);
  }
  if (rank > 0) {
    out.laurel_norm_D = made({D});
    out.laurel_left = product(rank, D);
    out.laurel_right = product(D, rank);
  }
  if (!config.altup) return out;
  const std::int64_t A = config.altup->inputs;
  out.router_AD = made({A, D});
  out.router_norm_D = made({D}) / static_cast<double>(D);
  out.prediction_AAA = made({A * A, A}) * 0.1;
  out.correction_AA = made({A, A}) * 0.1;
  out.scale_D = made({D});
  return out;
}

std::vector<GpuLinear*> GpuStreamEnds::products() {
  std::vector<GpuLinear*> all;
  if (norm_P.defined()) all.push_back(&projection);
  if (spread.outputs > 0) all.push_back(&spread);
  for (GpuLinear& linear : unembeddings) all.push_back(&linear);
  return all;
}

std::uint64_t GpuStreamEnds::num_bytes() const {
  std::uint64_t bytes = bytes_of({table_vX, norm_P}) + projection.num_bytes() + spread.num_bytes();
  for (const GpuLinear& linear : unembeddings) bytes += linear.num_bytes();
  return bytes;
}

GpuStreamEnds GpuStreamEnds::load(WeightSource& source, const ModelConfig& config, IndexRange vocab,
                                  at::ScalarType dtype, at::Device device) {
  GpuStreamEnds out;
  if (config.per_layer_width > 0) {
    out.table_vX = source.load_per_layer_table();
    out.ids = {vocab.begin, vocab.begin + static_cast<std::uint64_t>(out.table_vX.size(0))};
    out.table_scale = scale_of_table(config, dtype);
    out.norm_P = source.load_per_layer_norm();
    if (out.norm_P.defined()) {
      out.norm_P = out.norm_P.to(device);
      out.projection = plain_linear(source.load_per_layer_projection().to(device));
    }
  }
  const std::vector<at::Tensor> projections = source.load_matrices(&TensorNames::altup_projections);
  if (!projections.empty()) out.spread = plain_linear(at::cat(projections, 0).to(device));
  for (const at::Tensor& weight : source.load_matrices(&TensorNames::altup_unembeddings))
    out.unembeddings.push_back(plain_linear(weight.to(device)));
  return out;
}

GpuStreamEnds GpuStreamEnds::random(const ModelConfig& config, IndexRange vocab,
                                    const std::function<at::Tensor(at::IntArrayRef)>& made,
                                    const std::function<GpuLinear(std::int64_t, std::int64_t)>& product) {
  const std::int64_t D = config.hidden_size, X = config.num_hidden_layers * config.per_layer_width;
  GpuStreamEnds out;
  if (X > 0) {
    const auto most = static_cast<std::uint64_t>(config.per_layer_vocab);
    out.ids = {std::min(vocab.begin, most), std::min(vocab.end, most)};
    out.table_vX = product(static_cast<std::int64_t>(out.ids.size()), X).weight_NK;
    out.table_scale = std::sqrt(static_cast<float>(config.per_layer_width));
    if (vocab.begin == 0) {
      out.projection = product(X, D);
      out.norm_P = made({config.per_layer_width});
    }
  }
  if (!config.altup || config.altup->inputs < 2) return out;
  out.spread = product((config.altup->inputs - 1) * D, D);
  for (std::int64_t a = 1; a < config.altup->inputs; ++a) out.unembeddings.push_back(product(D, D));
  return out;
}

GpuStreamNumbers gpu_stream_numbers(const ModelConfig& config) {
  const auto D = static_cast<std::uint64_t>(config.hidden_size),
             A = static_cast<std::uint64_t>(config.altup ? config.altup->inputs : 0),
             X = static_cast<std::uint64_t>(config.num_hidden_layers * config.per_layer_width);
  // At the end the rows of all vectors but the first, and their products.
  return {X + A * D + (config.gate_sparsity.empty() ? 0 : 4), std::max(X, A > 0 ? 2 * (A - 1) * D : 0)};
}

void GpuModel::begin_stream(GpuPass& pass) const {
  const GpuStreamEnds& ends = weights_.ends;
  const std::int64_t T = pass.hidden_TD.size(0), D = weights_.config.hidden_size;
  if (!ends.has_vectors() && !weights_.config.altup) return;
  const at::Tensor rows_TD = norm(pass, {});
  if (ends.has_vectors()) compute_vectors(pass, rows_TD);
  if (!weights_.config.altup) return;
  const std::int64_t A = weights_.config.altup->inputs;
  pass.streams_TAD = at::empty({T, A, D}, pass.hidden_TD.options());
  const at::Tensor product_TX = A > 1 ? multiply(ends.spread, pass, {rows_TD}) : at::Tensor();
  with_type(weights_.dtype, [&](auto a) {
    using N = decltype(a);
    SpreadStream<N> kernel{
        {{}, (A - 1) * D, A, D}, pass.hidden_TD.const_data_ptr<float>(), pass.streams_TAD.data_ptr<float>()};
    for (std::int64_t i = 1; i < A; ++i) kernel.ends.products[i - 1] = data<N>(product_TX) + (i - 1) * D;
    launch(kernel, kernel.shape(T), queue_);
  });
}

void GpuModel::compute_vectors(GpuPass& pass, const at::Tensor& rows_TD) const {
  const ModelConfig& config = weights_.config;
  const GpuStreamEnds& ends = weights_.ends;
  const std::int64_t T = rows_TD.size(0), N = config.num_hidden_layers, P = config.per_layer_width;
  const at::Tensor product_TX = ends.norm_P.defined() ? multiply(ends.projection, pass, {rows_TD}) : at::Tensor();
  pass.vectors_TX = at::empty({T, N * P}, pass.hidden_TD.options());
  with_type(weights_.dtype, [&](auto a) {
    using A = decltype(a);
    const PerLayerVectors<A> kernel{data<A>(product_TX),
                                    data<float>(ends.norm_P),
                                    data<A>(ends.table_vX),
                                    pass.ids_T.const_data_ptr<std::int32_t>(),
                                    pass.vectors_TX.data_ptr<float>(),
                                    N,
                                    P,
                                    static_cast<std::int64_t>(ends.ids.begin),
                                    static_cast<std::int64_t>(ends.ids.end),
                                    config.per_layer_vocab,
                                    1.0f / std::sqrt(static_cast<float>(config.hidden_size)),
                                    ends.table_scale,
                                    static_cast<float>(config.rms_norm_eps)};
    launch(kernel, kernel.shape(T), queue_);
  });
  if (group_.tp_size() > 1) group_.all_reduce_sum(pass.vectors_TX);
}

void GpuModel::begin_layer(std::size_t number, GpuPass& pass) const {
  if (number > 0) end_layer(number - 1, pass);
  const GpuStreamLayer& layer = weights_.layers[number].around;
  if (!layer.has_altup()) return;
  const PredictStream kernel{step_of(weights_.config, layer, layer.prediction_AAA), pass.streams_TAD.data_ptr<float>(),
                             pass.hidden_TD.data_ptr<float>()};
  launch(kernel, kernel.shape(pass.hidden_TD.size(0)), queue_);
}

void GpuModel::add_laurel(const GpuLayer& layer, GpuPass& pass, const at::Tensor& normed_TD) const {
  const std::int64_t D = weights_.config.hidden_size;
  const at::Tensor low_Tr = multiply(layer.around.laurel_left, pass, {normed_TD}),
                   product_TD = multiply(layer.around.laurel_right, pass, {low_Tr});
  with_type(weights_.dtype, [&](auto a) {
    using N = decltype(a);
    const AddLaurel<N> kernel{pass.hidden_TD.data_ptr<float>(),
                              data<N>(product_TD),
                              data<float>(layer.attention_norms.input_D),
                              data<float>(layer.around.laurel_norm_D),
                              D,
                              static_cast<float>(weights_.config.rms_norm_eps)};
    launch(kernel, kernel.shape(pass.hidden_TD.size(0)), queue_);
  });
}

at::Tensor GpuModel::sparse_mlp(const GpuLayer& layer, const GpuPass& pass, const ProductRows& normed_TD) const {
  const LayerShape& shape = layer.shape;
  const at::Tensor gate_up_TF2 = multiply(layer.gate_up_proj, pass, normed_TD);
  const std::int64_t T = gate_up_TF2.size(0), F = shape.mlp;
  at::Tensor sums_T2 = at::empty({T, 2}, gate_up_TF2.options().dtype(at::kDouble)),
             middle_TF = at::empty({T, F}, gate_up_TF2.options());
  with_type(weights_.dtype, [&](auto a) {
    using A = decltype(a);
    const SumGates<A> sums{data<A>(gate_up_TF2), sums_T2.data_ptr<double>(), F};
    launch(sums, sums.shape(T), queue_);
    if (group_.tp_size() > 1) group_.all_reduce_sum(sums_T2);
    const SparseGate<A> gates{data<A>(gate_up_TF2),
                              sums_T2.const_data_ptr<double>(),
                              data<A>(middle_TF),
                              F,
                              static_cast<double>(shape.all_mlp),
                              *shape.gate_cutoff,
                              shape.activation};
    launch(gates, gates.shape(T), queue_);
  });
  return multiply(layer.down_proj, pass, {middle_TF});
}

// Returns what the vectors by layer read: the corrected active vector in dtype.
at::Tensor GpuModel::correct_stream(const GpuStreamLayer& layer, GpuPass& pass) const {
  const at::Tensor read_TD = at::empty(pass.hidden_TD.sizes(), pass.hidden_TD.options().dtype(weights_.dtype));
  with_type(weights_.dtype, [&](auto a) {
    using N = decltype(a);
    const auto run = [&]<typename Delta>(Delta) {
      const CorrectStream<N, Delta> kernel{step_of(weights_.config, layer, layer.correction_AA),
                                           pass.hidden_TD.const_data_ptr<float>(),
                                           data<Delta>(pass.delta_TD),
                                           pass.streams_TAD.data_ptr<float>(),
                                           data<float>(layer.scale_D),
                                           data<N>(read_TD)};
      launch(kernel, kernel.shape(pass.hidden_TD.size(0)), queue_);
    };
    if (pass.delta_TD.scalar_type() == at::kFloat) return run(float());
    run(N());
  });
  return read_TD;
}

void GpuModel::end_layer(std::size_t number, GpuPass& pass) const {
  const GpuLayer& layer = weights_.layers[number];
  if (!layer.around.has_vectors()) return;
  const std::int64_t T = pass.hidden_TD.size(0), D = weights_.config.hidden_size, P = weights_.config.per_layer_width;
  at::Tensor read_TD;
  if (layer.around.has_altup()) {
    take_delta(pass);
    read_TD = correct_stream(layer.around, pass);
  } else {
    read_TD = norm(pass, {});
  }
  pass.delta_TD.reset();
  pass.delta_norm_D.reset();
  const at::Tensor gate_TP = multiply(layer.around.per_layer_gate, pass, {read_TD}),
                   active_TP = at::empty_like(gate_TP);
  with_type(weights_.dtype, [&](auto a) {
    using A = decltype(a);
    const GateVectors<A> gates{data<A>(gate_TP),
                               pass.vectors_TX.const_data_ptr<float>() + static_cast<std::int64_t>(number) * P,
                               data<A>(active_TP),
                               T,
                               P,
                               pass.vectors_TX.size(1),
                               layer.shape.activation};
    start(gates, queue_);
    const at::Tensor product_TD = multiply(layer.around.per_layer_output, pass, {active_TP});
    AddNormed<A> sum{data<A>(product_TD),
                     data<float>(layer.around.per_layer_norm_D),
                     pass.hidden_TD.data_ptr<float>(),
                     D,
                     1,
                     D,
                     static_cast<float>(weights_.config.rms_norm_eps)};
    sum.factor = layer.around.factor;
    if (layer.around.has_altup()) {  // all vectors but the first get it, whichever is active
      sum.count = weights_.config.altup->inputs - 1;
      sum.stride = (sum.count + 1) * D;
      sum.stream = pass.streams_TAD.data_ptr<float>() + D;
    }
    launch(sum, sum.shape(T), queue_);
  });
}

void GpuModel::end_stream(GpuPass& pass) const {
  end_layer(weights_.layers.size() - 1, pass);
  if (!pass.streams_TAD.defined()) return;
  const std::int64_t T = pass.hidden_TD.size(0), A = pass.streams_TAD.size(1), D = pass.streams_TAD.size(2);
  const at::Tensor rows_XTD = pass.streams_TAD.narrow(1, 1, A - 1).transpose(0, 1).to(weights_.dtype).contiguous();
  std::vector<at::Tensor> products;
  for (std::int64_t i = 1; i < A; ++i)
    products.push_back(multiply(weights_.ends.unembeddings[static_cast<std::size_t>(i - 1)], pass, {rows_XTD[i - 1]}));
  with_type(weights_.dtype, [&](auto a) {
    using N = decltype(a);
    JoinStream<N> kernel{{{}, D, A, D}, pass.streams_TAD.const_data_ptr<float>(), pass.hidden_TD.data_ptr<float>()};
    for (std::size_t i = 0; i < products.size(); ++i) kernel.ends.products[i] = data<N>(products[i]);
    launch(kernel, kernel.shape(T), queue_);
  });
}

}  // namespace magister::gpu
