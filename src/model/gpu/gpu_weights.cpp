// Reads a shard's weights or makes random ones, and holds the rotary tables.
#include "model/gpu/gpu_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

#include "magister/core/log.h"
#include "magister/device/upload.h"
#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"
#include "magister/model/transformer.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/embed_kernel.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_latent.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/row_norm_kernel.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

// Compares the kernel that converts codes with the CPU's own conversion.
void check_codes(const Linear& linear, const GpuLinear& there) {
  if (!linear.is_quantized()) return;
  const Queue queue = there.codes_NB.is_cuda() ? Queue{there.codes_NB.device().index(), nullptr} : Queue{};
  compare_paths("weights of codes", plain_weight(there, at::kFloat, queue).cpu(), linear.plain_weight(), 0.0,
                "of the GPU");
}

}  // namespace

GpuWeights GpuWeights::empty(const ModelConfig& config, const ProcessGroup& group, at::ScalarType dtype,
                             const Queue& queue) {
  MAGISTER_ASSERT(dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kFloat8_e4m3fn);
  check_gpu_computes(config);
  MAGISTER_CHECK(!config.encoder, ExitCode::kConfig,
                 "random weights of the encoder {} on a GPU (only those of decoders are made); choose a decoder",
                 config.family);
  GpuWeights weights;
  weights.config = config;
  weights.partition = partition_for(config, group.tp_rank(), group.tp_size());
  weights.dtype = activation_dtype(dtype);
  weights.fp8 = dtype == at::kFloat8_e4m3fn;
  weights.device = device_of(queue);
  // A fast group sums in bf16: there, half the bytes are worth the rounding (layout.collectives).
  weights.float_sums = group.tp_size() > 1 && group.backend() != "nccl, fast";
  return weights;
}

std::vector<const GpuLinear*> GpuLayer::products() const {
  std::vector<const GpuLinear*> all = {&qkv_proj, &o_proj};
  if (has_gate()) all.push_back(&attention_gate);
  if (latent) all.push_back(&latent->up_proj);
  if (latent && latent->q_up_proj.outputs > 0) all.push_back(&latent->q_up_proj);
  if (latent && latent->indexer) all.insert(all.end(), {&latent->indexer->q_proj, &latent->indexer->k_proj});
  if (experts.empty() || beside.is_on()) all.insert(all.end(), {&gate_up_proj, &down_proj});
  for (const GpuExpert& expert : experts) all.insert(all.end(), {&expert.gate_up_proj, &expert.down_proj});
  const std::vector<const GpuLinear*> others = around.products();
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::vector<GpuLinear*> GpuLayer::products() {
  std::vector<GpuLinear*> all;
  for (const GpuLinear* linear : std::as_const(*this).products()) all.push_back(const_cast<GpuLinear*>(linear));
  return all;
}

GpuLayer GpuWeights::begin_layer(std::int64_t layer, const at::Tensor& sinks_H) const {
  GpuLayer out;
  out.shape = shape_of(config, partition, layer);
  out.scores = score_terms(out.shape, sinks_H, device);
  out.kv_layer = static_cast<std::size_t>(config.kv_layer(layer));
  out.mlp_shares_norm = shares_norms();
  for (std::int64_t later = layer + 1; later < config.num_hidden_layers; ++later)
    out.lends_kv = out.lends_kv || config.kv_layer(later) == layer;
  return out;
}

void GpuWeights::load(WeightSource& source, bool tied, const Queue& queue) {
  const auto vector_of = [&](const at::Tensor& vector) { return on_device(vector, device); };
  const auto norms_of = [&](const BlockNorms& norms) {
    return BlockNorms{vector_of(norms.input_D), vector_of(norms.output_D), norms.centred,
                      vector_of(norms.input_bias_D)};
  };
  const SendTensor send = [&source](const at::Tensor& host) { return source.sent(host); };
  embedding_vD = source.load_embeddings();
  positions_PD = vector_of(source.load_positions());
  embedding_norm = norms_of(source.load_embedding_norm());
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    GpuLayer layer = begin_layer(i, source.load_sinks(i));
    const auto product_of = [&](const Linear& linear) {
      GpuLinear there = to_device(linear, device, send);
      if (i == 0 && layer.experts.size() <= 1) check_codes(linear, there);
      if (fp8) to_fp8(there, queue);
      return there;
    };
    layer.attention_norms = norms_of(source.load_attention_norms(i));
    layer.mlp_norms = shares_norms() ? layer.attention_norms : norms_of(source.load_mlp_norms(i));
    layer.q_norm = vector_of(source.load_q_norm(i));
    layer.k_norm = vector_of(source.load_k_norm(i));
    layer.q_norm_bias = vector_of(source.load_q_norm_bias(i));
    layer.k_norm_bias = vector_of(source.load_k_norm_bias(i));
    layer.norms_values = config.v_norm;
    const at::Tensor factor = source.load_layer_whole(i, &TensorNames::Layer::layer_scalar);
    if (factor.defined()) layer.factor = factor.item<float>();
    layer.qkv_proj = product_of(source.load_qkv_proj(i));
    if (layer.shape.latent) layer.latent = load_latent(source, i, layer.shape, *this, product_of);
    layer.o_proj = product_of(source.load_o_proj(i));
    if (layer.shape.gate_numbers > 0) layer.attention_gate = product_of(source.load_attention_gate(i));
    load_mlp(source, i, *this, product_of, layer, queue);
    layer.around = GpuStreamLayer::load(source, i, config, device, product_of);
    if (layer.around.has_vectors()) layer.around.factor = std::exchange(layer.factor, 1.0f);
    layers.push_back(std::move(layer));
  }
  ends = GpuStreamEnds::load(source, config, partition.vocab, dtype, device);
  norm = norms_of(source.load_norm());
  head.weight_NK = tied ? embedding_vD : source.load_lm_head(embedding_vD);
  head.bias_N = vector_of(source.load_lm_head_bias());
  head.inputs = config.hidden_size;
  head.outputs = head.weight_NK.size(0);
}

namespace {

GpuLinear random_linear(std::int64_t N, std::int64_t K, const GpuWeights& weights, const QuantScheme& scheme) {
  GpuLinear linear;
  linear.outputs = N;
  linear.inputs = K;
  const auto options = at::TensorOptions().device(weights.device);
  const double deviation = 1.0 / std::sqrt(static_cast<double>(K));
  if (!scheme.on()) {
    linear.weight_NK = at::empty({N, K}, options.dtype(weights.dtype)).normal_(0, deviation);
    return linear;
  }
  linear.scheme = scheme;
  const std::int64_t bytes = (K * scheme.bits() / 8 + 15) / 16 * 16,
                     groups = scheme.group == 0 ? 1 : (K + scheme.group - 1) / scheme.group;
  linear.codes_NB = at::randint(0, 256, {N, bytes}, options.dtype(at::kByte));
  // Codes are uniform: their standard deviation is 2^bits / sqrt(12).
  const double step = deviation * std::sqrt(12.0) / static_cast<double>(std::int64_t{1} << scheme.bits());
  linear.scales_NG = at::full({N, groups}, step, options.dtype(at::kBFloat16)).view(at::kShort);
  return linear;
}

}  // namespace

void GpuWeights::randomize(const QuantScheme& scheme, const Queue& queue) {
  const auto D = config.hidden_size, v = static_cast<std::int64_t>(partition.vocab.size());
  const auto ones = [&](std::int64_t size) {
    return at::ones({size}, at::TensorOptions().dtype(at::kFloat).device(device));
  };
  const auto made = [&](at::IntArrayRef size) {
    return at::ones(size, at::TensorOptions().dtype(at::kFloat).device(device));
  };
  const auto add_bias = [&](BlockNorms& norms) {
    if (config.norm_bias && norms.input_D.defined()) norms.input_bias_D = at::zeros_like(norms.input_D);
  };
  embedding_vD = random_linear(v, D, *this, {}).weight_NK;
  if (config.learned_positions && partition.vocab.begin == 0)
    positions_PD = random_linear(config.position_rows(), D, *this, {}).weight_NK;
  if (config.embedding_norm) embedding_norm.input_D = ones(D);
  add_bias(embedding_norm);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::int64_t E = config.head_dim_of(i), H = static_cast<std::int64_t>(partition.heads.size());
    GpuLayer layer = begin_layer(i, config.has_sinks(i) ? ones(H) : at::Tensor());
    for (BlockNorms* norms : {&layer.attention_norms, &layer.mlp_norms}) {
      if (config.norm_placement != NormPlacement::kOutput) norms->input_D = ones(D);
      if (config.norm_placement != NormPlacement::kInput) norms->output_D = ones(D);
      add_bias(*norms);
    }
    layer.norms_values = config.v_norm;
    if (config.qk_norm) {
      layer.q_norm = ones(config.qk_norm_of_all_heads ? layer.shape.heads * E : E);
      layer.k_norm = ones(config.qk_norm_of_all_heads ? layer.shape.kv_heads * E : E);
      if (config.qk_layer_norm) layer.q_norm_bias = layer.k_norm_bias = at::zeros_like(layer.q_norm);
    }
    if (layer.shape.qk_l2_norm) layer.q_norm = layer.k_norm = ones(E);
    const std::int64_t qkv =
        layer.shape.latent ? short_numbers(layer.shape) : layer.shape.qkv_features() - repeated_keys(layer.shape);
    layer.qkv_proj = random_linear(qkv, D, *this, scheme);
    layer.o_proj = random_linear(D, layer.shape.heads * layer.shape.value_dim(), *this, scheme);
    if (layer.shape.gate_numbers > 0) layer.attention_gate = random_linear(layer.shape.gate_numbers, D, *this, scheme);
    randomize_mlp(
        i, *this,
        [&](std::int64_t N, std::int64_t K, bool plain) {
          return random_linear(N, K, *this, plain ? QuantScheme{} : scheme);
        },
        layer);
    layer.around = GpuStreamLayer::random(
        config, made, [&](std::int64_t N, std::int64_t K) { return random_linear(N, K, *this, scheme); });
    for (GpuLinear* linear : layer.products()) {
      if (fp8) to_fp8(*linear, queue);
    }
    if (const auto& latent = layer.shape.latent) {
      if (latent->query_rank > 0) layer.q_norm = ones(latent->query_rank);
      layer.k_norm = ones(latent->rank);
      layer.latent = random_latent(layer.shape, *this, [&](std::int64_t N, std::int64_t K, bool quantised) {
        GpuLinear linear = random_linear(N, K, *this, quantised ? scheme : QuantScheme{});
        if (fp8 && quantised) to_fp8(linear, queue);
        return linear;
      });
    }
    layers.push_back(std::move(layer));
  }
  ends = GpuStreamEnds::random(config, partition.vocab, made,
                               [&](std::int64_t N, std::int64_t K) { return random_linear(N, K, *this, {}); });
  norm.input_D = ones(D);
  add_bias(norm);
  head = random_linear(config.tie_word_embeddings ? 0 : v, D, *this, {});
  if (config.tie_word_embeddings) head.weight_NK = embedding_vD;
  head.outputs = v;
}

void GpuWeights::find_tile_sizes(const Queue& queue) {
  std::map<std::tuple<std::int64_t, std::int64_t, bool, bool>, const GpuLinear*> known;
  const auto find = [&](GpuLinear* linear) {
    const auto [place, is_new] =
        known.try_emplace({linear->outputs, linear->inputs, linear->fp8_NK.defined(), linear->float_out}, linear);
    if (is_new) gpu::find_tile_sizes(*linear, dtype, queue);
    linear->fixed = place->second->fixed;
    linear->prompt_tiles = place->second->prompt_tiles;
    linear->pass_tiles = place->second->pass_tiles;
  };
  for (GpuLinear* linear : ends.products()) find(linear);
  for (GpuLayer& layer : layers) {
    // With one shard they stay bf16: f32 would take 2.4 ms more of an 8B model's 190 ms for 8,192 tokens.
    layer.o_proj.float_out = layer.down_proj.float_out = float_sums;
    for (GpuExpert& expert : layer.experts) expert.down_proj.float_out = float_sums;
    for (GpuLinear* linear : layer.products()) find(linear);
  }
  if (queue.on_host() || !config.labels.empty()) return;  // rows of labels are few, and use product()
  const at::Tensor block_BD = self_test_block(kTriedBlock, head.inputs, device).to(dtype);
  head.fixed = choose_product(lt_algorithms(head.outputs, head.inputs, dtype, at::kFloat, queue),
                              {block_BD, head.weight_NK}, at::kFloat, queue, kLogitRows);
  if (!head.fixed.defined())
    log_info("logits of {} rows use the algorithm that cuBLAS chooses: none was found that gives each row its own bits",
             kLogitRows);
}

std::uint64_t GpuWeights::num_bytes() const {
  std::uint64_t bytes =
      embedding_vD.nbytes() + ends.num_bytes() + (head.weight_NK.is_same(embedding_vD) ? 0 : head.weight_NK.nbytes());
  bytes += bytes_of({positions_PD, embedding_norm.input_D, embedding_norm.input_bias_D, norm.input_D, norm.input_bias_D,
                     head.bias_N});
  for (const GpuLayer& layer : layers) {
    for (const GpuLinear* linear : layer.products()) bytes += linear->num_bytes();
    bytes += layer.around.num_bytes();
    if (layer.latent) bytes += other_latent_bytes(*layer.latent);
    if (!layer.experts.empty()) bytes += layer.router.num_bytes();
    bytes +=
        bytes_of({layer.attention_norms.input_D, layer.attention_norms.input_bias_D, layer.attention_norms.output_D,
                  layer.mlp_norms.output_D, layer.q_norm, layer.k_norm, layer.q_norm_bias, layer.k_norm_bias,
                  layer.choice_bias_X, layer.expert_scales_X, layer.beside.output_D, layer.beside.experts_output_D,
                  layer.beside.experts_input_D, layer.beside.router_input_D, layer.scores.sinks_H});
    if (!shares_norms()) bytes += bytes_of({layer.mlp_norms.input_D, layer.mlp_norms.input_bias_D});
  }
  return bytes;
}

bool GpuWeights::has_codes() const {
  return std::any_of(layers.begin(), layers.end(), [](const GpuLayer& layer) {
    const std::vector<const GpuLinear*> products = layer.products();
    return std::any_of(products.begin(), products.end(), [](const GpuLinear* one) { return one->is_quantized(); });
  });
}

template <typename A>
void add_norm(const GpuWeights& weights, const at::Tensor& hidden_TD, const at::Tensor& delta_TD,
              const BlockNorms& norms, const at::Tensor& out_TD, const Queue& queue, float factor) {
  const std::int64_t T = out_TD.size(0), D = weights.config.hidden_size;
  const at::Tensor& weight_D = norms.input_D;
  const auto eps = static_cast<float>(weights.config.rms_norm_eps);
  const auto run = [&]<typename Delta>(Delta) {
    if (weights.config.norm_kind == NormKind::kLayer && weight_D.defined()) {
      const AddLayerNorm<A, Delta> kernel{data<float>(hidden_TD),
                                          data<Delta>(delta_TD),
                                          data<float>(weight_D),
                                          data<A>(out_TD),
                                          D,
                                          eps,
                                          data<float>(norms.input_bias_D),
                                          factor};
      return launch(kernel, kernel.shape(T), queue);
    }
    const AddRmsNorm<A, Delta> kernel{
        data<float>(hidden_TD), data<Delta>(delta_TD), data<float>(weight_D), data<A>(out_TD), D, eps, nullptr, factor};
    if constexpr (std::is_same_v<A, Bf16> && std::is_same_v<Delta, float>) {
      if (const AddRowNorm<2> of_row{kernel}; of_row.takes(kernel, T)) return launch(of_row, of_row.shape(T), queue);
      if (const AddRowNorm<4> of_row{kernel}; of_row.takes(kernel, T)) return launch(of_row, of_row.shape(T), queue);
    }
    launch(kernel, kernel.shape(T), queue);
  };
  if (delta_TD.defined() && delta_TD.scalar_type() == at::kFloat) return run(float());
  run(A());
}
template void add_norm<Bf16>(const GpuWeights&, const at::Tensor&, const at::Tensor&, const BlockNorms&,
                             const at::Tensor&, const Queue&, float);
template void add_norm<float>(const GpuWeights&, const at::Tensor&, const at::Tensor&, const BlockNorms&,
                              const at::Tensor&, const Queue&, float);

void embed_rows(const GpuWeights& weights, const at::Tensor& ids_T, const at::Tensor& positions_T,
                const at::Tensor& hidden_TD, const Queue& queue) {
  with_type(weights.dtype, [&](auto a) {
    using A = decltype(a);
    const EmbedRows<A> kernel{data<A>(weights.embedding_vD),
                              data<std::int32_t>(ids_T),
                              data<float>(hidden_TD),
                              weights.config.hidden_size,
                              static_cast<std::int64_t>(weights.partition.vocab.begin),
                              static_cast<std::int64_t>(weights.partition.vocab.end),
                              weights.embedding_scale(),
                              data<A>(weights.positions_PD),
                              data<std::int32_t>(positions_T),
                              weights.config.skipped_position_rows};
    launch(kernel, kernel.shape(hidden_TD.size(0)), queue);
  });
}

void norm_embeddings(const GpuWeights& weights, const at::Tensor& hidden_TD, const Queue& queue) {
  if (weights.embedding_norm.input_D.defined())
    add_norm<float>(weights, hidden_TD, {}, weights.embedding_norm, hidden_TD, queue);
}

void RopeOnDevice::reach(std::int64_t positions) {
  if (this->positions() >= positions) return;
  cos_.clear();
  sin_.clear();
  for (std::size_t i = 0; i < num_rope_tables(weights_.config); ++i) {
    const RopeTable table = rope_table(weights_.config, 0, (positions + kStep - 1) / kStep * kStep, i);
    cos_.push_back(table.cos_PE2.to(weights_.device));
    sin_.push_back(table.sin_PE2.to(weights_.device));
  }
  ++generation_;
}

}  // namespace magister::gpu
