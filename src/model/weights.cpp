// Reads slices of the file's tensors directly into the fused tensors of one shard. Two kinds of tensors pass through a
// second buffer: interleaved rotary rows (GGUF's Llama), one head at a time (E x D numbers, 4 MB for a head of 128 and
// a hidden size of 8192), and transposed weights, the rows of one thread at a time.
// Source: transformers' layout of q, k, v, gate and up.
#include "magister/model/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "magister/core/error.h"
#include "magister/device/staged_upload.h"
#include "magister/io/checkpoint/device_tensors.h"
#include "magister/model/parameter_table.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/kept_codes.h"

namespace magister {
namespace {

std::int64_t size_of(IndexRange range) { return static_cast<std::int64_t>(range.size()); }

// Reorders the rows of one head from [E/2, 2] pairs to [2, E/2] halves; the last dimension stays.
at::Tensor as_halves(const at::Tensor& pairs_EX) {
  const std::int64_t half = pairs_EX.size(0) / 2;
  return pairs_EX.view({half, 2, pairs_EX.size(1)}).transpose(0, 1);
}

bool has_l2_norms(const ModelConfig& config, std::int64_t layer) {
  return config.qk_l2_norm && config.rotary_dim_of(layer) > 0;
}

// Range of a q or k norm weight of a layer: one head's numbers, or those of this shard's heads.
IndexRange qk_norm_range(const ModelConfig& config, std::int64_t layer, IndexRange heads) {
  const auto E = static_cast<std::uint64_t>(config.head_dim_of(layer));
  return config.qk_norm_of_all_heads ? IndexRange{heads.begin * E, heads.end * E} : IndexRange{0, E};
}

}  // namespace

WeightSource::WeightSource(const TensorFile& file, const ModelDescription& description, const Partition& partition,
                           int tp_rank, at::ScalarType dtype, QuantScheme quantization, ThreadPool* pool,
                           LoadHook before_product)
    : file_(file),
      description_(description),
      partition_(partition),
      tp_rank_(tp_rank),
      dtype_(dtype),
      quantization_(quantization),
      pool_(pool),
      before_product_(std::move(before_product)) {
  MAGISTER_ASSERT(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
}

at::Tensor WeightSource::allocate(at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
  const std::lock_guard lock(mutex_);
  loaded_bytes_ += tensor.nbytes();
  return tensor;
}

at::Tensor WeightSource::allocate_table(at::IntArrayRef shape) {
  if (upload_ == nullptr) return allocate(shape, dtype_);
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype_).device(upload_->device()));
  const std::lock_guard lock(mutex_);
  loaded_bytes_ += tensor.nbytes();
  return tensor;
}

at::Tensor WeightSource::sent(const at::Tensor& host) {
  MAGISTER_ASSERT(upload_ != nullptr && host.is_contiguous());
  at::Tensor there = at::empty(host.sizes(), host.options().device(upload_->device()));
  const at::Tensor from_X = host.view({-1}), to_X = there.view({-1});
  const std::int64_t part =
      std::max<std::int64_t>(1, upload_->block_bytes() / static_cast<std::int64_t>(host.element_size()));
  on_threads(pool_, (host.numel() + part - 1) / part, [&](std::int64_t index) {
    const std::int64_t first = index * part, count = std::min(part, host.numel() - first);
    upload_->send(to_X.narrow(0, first, count),
                  [&](const at::Tensor& block_X) { block_X.copy_(from_X.narrow(0, first, count)); });
  });
  return there;
}

void WeightSource::read(const std::string& name, IndexRange rows, IndexRange columns, at::Tensor out) {
  file_.read(name, static_cast<std::int64_t>(rows.begin), static_cast<std::int64_t>(rows.end),
             static_cast<std::int64_t>(columns.begin), static_cast<std::int64_t>(columns.end), std::move(out));
  const std::lock_guard lock(mutex_);
  used_.insert(name);
}

const TensorNames::Layer& WeightSource::names_of(std::int64_t layer) const {
  return description_.names.layers.at(static_cast<std::size_t>(layer));
}

at::Tensor WeightSource::load_vector(const std::string& name, IndexRange range) {
  if (name.empty()) return {};
  at::Tensor out_N = allocate({size_of(range)}, at::kFloat);
  read(name, {0, 1}, range, out_N.unsqueeze(0));
  return out_N;
}

std::int64_t WeightSource::even_part(std::int64_t N) const {
  const std::int64_t threads = pool_ == nullptr ? 1 : pool_->num_threads();
  return threads == 1 ? N : N / (4 * threads) + 64;
}

std::int64_t WeightSource::rows_of_part(const at::Tensor& out_NK, bool is_sent) const {
  if (!is_sent) return even_part(out_NK.size(0));
  const auto row_bytes = out_NK.size(1) * static_cast<std::int64_t>(out_NK.element_size());
  return std::max<std::int64_t>(1, upload_->block_bytes() / std::max<std::int64_t>(row_bytes, 1));
}

at::Tensor WeightSource::load_table(const std::string& name, IndexRange rows, std::int64_t width) {
  at::Tensor out_vD = allocate_table({size_of(rows), width});
  RowBlock block{name, rows};
  read_blocks({block}, {0, static_cast<std::uint64_t>(width)}, out_vD, upload_ != nullptr);
  return out_vD;
}

at::Tensor WeightSource::load_lm_head(const at::Tensor& embeddings_vD) {
  if (description_.names.lm_head.empty()) return embeddings_vD;
  return load_table(description_.names.lm_head, partition_.head_rows(description_.config),
                    description_.config.hidden_size);
}

at::Tensor WeightSource::load_input_norm(const std::string& name, IndexRange range) {
  if (name.empty() && description_.config.weightless_norms) return at::ones({size_of(range)}, at::kFloat);
  return load_norm_weight(name, range);
}

at::Tensor WeightSource::load_norm_weight(const std::string& name, IndexRange range) {
  const at::Tensor weight = load_vector(name, range);
  return weight.defined() && description_.config.norm_weights_plus_one ? weight.add_(1.0) : weight;
}

at::Tensor WeightSource::load_lm_head_bias() {
  return load_vector(description_.names.lm_head_bias, partition_.head_rows(description_.config));
}

at::Tensor WeightSource::load_positions() {
  const std::string& name = description_.names.embed_positions;
  if (name.empty() || tp_rank_ > 0) return {};
  const std::int64_t P = description_.config.position_rows(), D = description_.config.hidden_size;
  at::Tensor out_PD = allocate({P, D}, dtype_);
  read(name, {0, static_cast<std::uint64_t>(P)}, {0, static_cast<std::uint64_t>(D)}, out_PD);
  return out_PD;
}

at::Tensor WeightSource::load_whole(const std::string& name, at::IntArrayRef shape) {
  if (name.empty()) return {};
  at::Tensor out = allocate(shape, at::kFloat);
  const auto columns = static_cast<std::uint64_t>(shape.back());
  const auto rows = static_cast<std::uint64_t>(out.numel()) / columns;
  read(name, {0, rows}, {0, columns}, out.view({-1, shape.back()}));
  return out;
}

BlockNorms WeightSource::load_norm() {
  const IndexRange all{0, static_cast<std::uint64_t>(description_.config.hidden_size)};
  BlockNorms norm{load_input_norm(description_.names.norm, all),
                  {},
                  description_.config.norm_kind == NormKind::kLayer,
                  load_vector(description_.names.norm_bias, all)};
  // The head has no bias, so a factor of its input is a factor of the logits.
  const double scale = description_.config.logit_scale;
  if (scale == 1.0) return norm;
  norm.input_D.mul_(scale);
  if (norm.input_bias_D.defined()) norm.input_bias_D.mul_(scale);
  return norm;
}

BlockNorms WeightSource::load_attention_norms(std::int64_t layer) {
  const IndexRange all{0, static_cast<std::uint64_t>(description_.config.hidden_size)};
  const TensorNames::Layer& names = names_of(layer);
  return {load_input_norm(names.attention_input_norm, all), load_norm_weight(names.attention_output_norm, all),
          description_.config.norm_kind == NormKind::kLayer, load_vector(names.attention_input_norm_bias, all)};
}

BlockNorms WeightSource::load_mlp_norms(std::int64_t layer) {
  const IndexRange all{0, static_cast<std::uint64_t>(description_.config.hidden_size)};
  const TensorNames::Layer& names = names_of(layer);
  return {load_input_norm(names.mlp_input_norm, all), load_norm_weight(names.mlp_output_norm, all),
          description_.config.norm_kind == NormKind::kLayer, load_vector(names.mlp_input_norm_bias, all)};
}

BlockNorms WeightSource::load_embedding_norm() {
  const IndexRange all{0, static_cast<std::uint64_t>(description_.config.hidden_size)};
  const bool is_on = description_.config.embedding_norm;
  return {is_on ? load_input_norm(description_.names.embed_norm, all) : at::Tensor(),
          {},
          description_.config.norm_kind == NormKind::kLayer,
          load_vector(description_.names.embed_norm_bias, all)};
}

at::Tensor WeightSource::load_q_norm_bias(std::int64_t layer) {
  return load_vector(names_of(layer).q_norm_bias, qk_norm_range(description_.config, layer, partition_.heads));
}

at::Tensor WeightSource::load_k_norm_bias(std::int64_t layer) {
  return load_vector(names_of(layer).k_norm_bias, qk_norm_range(description_.config, layer, part_of(layer).kv_heads));
}

at::Tensor WeightSource::load_q_norm(std::int64_t layer) {
  if (has_l2_norms(description_.config, layer)) return at::ones({description_.config.head_dim}, at::kFloat);
  if (const auto& latent = description_.config.latent)
    return load_norm_weight(names_of(layer).q_norm, {0, static_cast<std::uint64_t>(latent->query_rank)});
  return load_norm_weight(names_of(layer).q_norm, qk_norm_range(description_.config, layer, partition_.heads));
}

at::Tensor WeightSource::load_sinks(std::int64_t layer) { return load_vector(names_of(layer).sinks, partition_.heads); }

at::Tensor WeightSource::load_k_norm(std::int64_t layer) {
  if (has_l2_norms(description_.config, layer)) return at::ones({description_.config.head_dim}, at::kFloat);
  if (const auto& latent = description_.config.latent)
    return load_norm_weight(names_of(layer).k_norm, {0, static_cast<std::uint64_t>(latent->rank)});
  return load_norm_weight(names_of(layer).k_norm, qk_norm_range(description_.config, layer, part_of(layer).kv_heads));
}

void WeightSource::read_block(const RowBlock& block, IndexRange columns, const at::Tensor& out_RK) {
  const std::int64_t rows = out_RK.size(0), K = out_RK.size(1);
  if (block.transposed) {
    at::Tensor stored_KR = at::empty({K, size_of(block.rows)}, out_RK.options());
    read(block.tensor, {block.first_input + columns.begin, block.first_input + columns.end}, block.rows, stored_KR);
    out_RK.copy_(stored_KR.slice(1, 0, std::nullopt, static_cast<std::int64_t>(block.step)).t());
    return;
  }
  if (!block.as_halves) return read(block.tensor, block.rows, columns, out_RK);
  at::Tensor pairs_RK = at::empty({rows, K}, out_RK.options());
  read(block.tensor, block.rows, columns, pairs_RK);
  out_RK.view({2, rows / 2, K}).copy_(as_halves(pairs_RK));
}

void WeightSource::read_blocks(const std::vector<RowBlock>& blocks, IndexRange columns, const at::Tensor& out_NK,
                               bool is_sent) {
  // Some checkpoints pack words along the outputs, and every part then reads them as a whole. So there are few parts.
  const std::vector<RowBlock> parts = divided(blocks, rows_of_part(out_NK, is_sent));
  const bool are_there = is_sent && are_on(file_, upload_->device());
  // A device copies its own numbers, and one thread queues that.
  on_threads(are_there ? nullptr : pool_, static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
    const RowBlock& block = parts[static_cast<std::size_t>(index)];
    const at::Tensor out_RK = out_NK.narrow(0, block.output, block.outputs());
    if (!is_sent || are_there) return read_block(block, columns, out_RK);
    upload_->send(out_RK, [&](const at::Tensor& block_RK) { read_block(block, columns, block_RK); });
  });
}

Linear WeightSource::load_product(const std::vector<RowBlock>& blocks, std::int64_t N, IndexRange columns,
                                  std::uint64_t width) {
  if (before_product_) before_product_();
  if (!quantization_.on() && packs_) return load_packed(blocks, N, columns);
  if (!quantization_.on()) {
    Linear out{allocate_table({N, size_of(columns)}), {}};
    read_blocks(blocks, columns, out.weight_NK, upload_ != nullptr);
    return out;
  }
  std::vector<std::string> tensors;
  for (const RowBlock& block : blocks) {
    if (tensors.empty() || tensors.back() != block.tensor) tensors.push_back(block.tensor);
  }
  Linear out;
  const std::optional<CodeFormat> codes = blocks.front().transposed ? std::nullopt : common_code_format(file_, tensors);
  if (codes && quantization_.keeps(*codes)) {
    out = keep_codes(file_, blocks, N, *codes, quantization_, columns, pool_);
  } else {
    const IndexRange covering = quantization_.covering(columns, width);
    const Linear plain{at::empty({N, size_of(covering)}, at::TensorOptions().dtype(at::kFloat)), {}};
    read_blocks(blocks, covering, plain.weight_NK, false);
    out = quantize(plain, quantization_, columns, covering, pool_);
  }
  const std::lock_guard lock(mutex_);
  used_.insert(tensors.begin(), tensors.end());
  for (const at::Tensor* part : {&out.panels_PKW, &out.scales_PGW, &out.offsets_PGW})
    loaded_bytes_ += part->defined() ? part->nbytes() : 0;
  return out;
}

std::uint64_t WeightSource::first_row(std::int64_t layer, std::string TensorNames::Layer::* weight) const {
  for (const LayerParameter& row : layer_parameters(description_.config, layer)) {
    if (row.expert < 0 && row.name == weight) return static_cast<std::uint64_t>(row.first_row);
  }
  return 0;
}

void WeightSource::add_heads(std::vector<RowBlock>& blocks, std::int64_t layer,
                             std::string TensorNames::Layer::* weight, IndexRange heads, bool rotary) const {
  const ModelConfig& config = description_.config;
  const std::string& name = names_of(layer).*weight;
  const std::uint64_t E = head_rows(layer, weight);
  // The number of rows of a head that are stored as pairs; the others are not rotated.
  const auto R = config.rotary_dim > 0 ? static_cast<std::uint64_t>(config.rotary_dim) : E;
  const bool pairs = rotary && description_.names.interleaved_rope_rows;
  std::int64_t output = blocks.empty() ? 0 : blocks.back().output + size_of(blocks.back().rows);
  const auto add = [&](std::uint64_t begin, std::uint64_t end, bool as_halves) {
    if (begin == end) return;
    blocks.push_back({name, {begin, end}, output, as_halves, description_.names.transposed_products});
    output += size_of(blocks.back().rows);
  };
  if (config.gate_beside_queries) return add_rows(blocks, layer, weight, {heads.begin * E, heads.end * E});
  const std::uint64_t first = first_row(layer, weight);
  if (config.fused_qkv_by_head || (config.fused_qkv_by_quarter && !pairs)) {
    for (std::uint64_t head = heads.begin; head < heads.end; ++head)
      add(head_row(layer, first, head), head_row(layer, first, head) + E, false);
    return;
  }
  if (!pairs) return add(first + heads.begin * E, first + heads.end * E, false);
  for (std::uint64_t head = heads.begin; head < heads.end; ++head) {  // pairs must be reordered head by head
    add(head_row(layer, first, head), head_row(layer, first, head) + R, true);
    add(head_row(layer, first, head) + R, head_row(layer, first, head) + E, false);
  }
}

RowBlock WeightSource::mlp_rows(std::int64_t layer, std::string TensorNames::Layer::* weight,
                                std::int64_t output) const {
  const std::uint64_t first = first_row(layer, weight);
  const IndexRange mlp = part_of(layer).mlp;
  return {names_of(layer).*weight,
          {first + mlp.begin, first + mlp.end},
          output,
          false,
          description_.names.transposed_products};
}

std::uint64_t WeightSource::head_rows(std::int64_t layer, std::string TensorNames::Layer::* weight) const {
  const ModelConfig& config = description_.config;
  const bool is_value = weight == &TensorNames::Layer::v_proj || weight == &TensorNames::Layer::v_bias;
  return static_cast<std::uint64_t>(is_value ? config.value_dim_of(layer) : config.head_dim_of(layer));
}

std::uint64_t WeightSource::head_row(std::int64_t layer, std::uint64_t first, std::uint64_t head) const {
  const auto E = static_cast<std::uint64_t>(description_.config.head_dim_of(layer));
  if (description_.config.fused_qkv_by_quarter) {
    const auto quarter = static_cast<std::uint64_t>(description_.config.num_attention_heads) / 4;
    const std::uint64_t part = first / (4 * quarter * E), place = part == 0 ? 0 : part == 1 ? 2 : 1;
    return (head / quarter * 3 + place) * quarter * E + head % quarter * E;
  }
  if (!description_.config.fused_qkv_by_head) return first + head * E;
  // The file stores the query heads of a KV head, its keys and its values in turn; `first` counts as if all rows of q
  // came first, then those of k.
  const auto H = static_cast<std::uint64_t>(description_.config.num_attention_heads),
             K = static_cast<std::uint64_t>(description_.config.num_key_value_heads), group = H / K;
  if (first == 0) return (head / group * (group + 2) + head % group) * E;
  return (head * (group + 2) + group + (first == H * E ? 0 : 1)) * E;
}

void WeightSource::read_head_bias(std::int64_t layer, std::string TensorNames::Layer::* bias, IndexRange heads,
                                  const at::Tensor& out, bool rotary) {
  const std::uint64_t e = head_rows(layer, bias);
  const auto E = static_cast<std::int64_t>(e);
  const std::uint64_t first = first_row(layer, bias);
  const bool plain = !description_.config.fused_qkv_by_head && !description_.config.fused_qkv_by_quarter;
  for (std::uint64_t head = heads.begin; head < heads.end; ++head) {
    const std::uint64_t row = plain ? first + head * e : head_row(layer, first, head);
    read(names_of(layer).*bias, {0, 1}, {row, row + e},
         out.narrow(0, static_cast<std::int64_t>(head - heads.begin) * E, E).unsqueeze(0));
  }
  if (!rotary || !description_.names.interleaved_rope_rows) return;
  const std::int64_t R = description_.config.rotary_dim > 0 ? description_.config.rotary_dim : E;
  for (std::int64_t row = 0; row < out.size(0); row += E) {
    at::Tensor turning_R1 = out.narrow(0, row, R).unsqueeze(1);
    turning_R1.view({2, R / 2, 1}).copy_(as_halves(turning_R1.clone()));
  }
}

Linear WeightSource::load_qkv_proj(std::int64_t layer) {
  if (description_.config.is_linear(layer)) return load_delta_proj(layer);
  if (description_.config.latent) return load_latent_proj(layer);
  const TensorNames::Layer& names = names_of(layer);
  const ModelConfig& config = description_.config;
  const std::int64_t E = config.head_dim_of(layer), D = config.hidden_size;
  const IndexRange kv_heads = part_of(layer).kv_heads;
  // Rows of a layer without keys, or without values of their own: none.
  const std::int64_t q = size_of(partition_.heads) * E, k = config.has_own_kv(layer) ? size_of(kv_heads) * E : 0,
                     v = config.keys_are_values(layer) ? 0 : k / E * config.value_dim_of(layer);
  std::vector<RowBlock> blocks;
  using Layer = TensorNames::Layer;
  add_heads(blocks, layer, &Layer::q_proj, partition_.heads, true);
  if (k > 0) add_heads(blocks, layer, &Layer::k_proj, kv_heads, true);
  if (v > 0) add_heads(blocks, layer, &Layer::v_proj, kv_heads, false);
  Linear out = load_product(blocks, q + k + v, {0, static_cast<std::uint64_t>(D)}, static_cast<std::uint64_t>(D));
  if (names.q_bias.empty()) return out;
  out.bias_N = allocate({q + k + v}, at::kFloat);
  read_head_bias(layer, &Layer::q_bias, partition_.heads, out.bias_N.narrow(0, 0, q), true);
  if (k > 0) read_head_bias(layer, &Layer::k_bias, kv_heads, out.bias_N.narrow(0, q, k), true);
  if (v > 0) read_head_bias(layer, &Layer::v_bias, kv_heads, out.bias_N.narrow(0, q + k, v), false);
  return out;
}

Linear WeightSource::load_partial(const std::string& name, IndexRange columns, std::uint64_t width,
                                  const std::string& bias) {
  const auto D = static_cast<std::uint64_t>(description_.config.hidden_size);
  Linear out = load_product({{name, {0, D}, 0, false, description_.names.transposed_products}},
                            description_.config.hidden_size, columns, width);
  if (tp_rank_ == 0) out.bias_N = load_vector(bias, {0, D});
  return out;
}

Linear WeightSource::load_o_proj(std::int64_t layer) {
  const TensorNames::Layer& names = names_of(layer);
  const auto& latent = description_.config.latent;
  const auto E = static_cast<std::uint64_t>(latent ? latent->value_dim : description_.config.value_dim_of(layer));
  const auto all = static_cast<std::uint64_t>(description_.config.heads_of(layer));
  const IndexRange heads = part_of(layer).heads;
  return load_partial(names.o_proj, {heads.begin * E, heads.end * E}, all * E, names.o_bias);
}

Linear WeightSource::load_attention_gate(std::int64_t layer) {
  const ModelConfig& config = description_.config;
  if (config.gate_numbers(layer) == 0) return {};
  const auto D = static_cast<std::uint64_t>(config.hidden_size),
             each = static_cast<std::uint64_t>(config.gate_numbers(layer) / config.heads_of(layer));
  const IndexRange heads = part_of(layer).heads, rows{heads.begin * each, heads.end * each};
  std::vector<RowBlock> blocks;
  add_rows(blocks, layer, &TensorNames::Layer::attention_gate, rows);
  return load_product(blocks, size_of(rows), {0, D}, D);
}

Linear WeightSource::load_gate_up_proj(std::int64_t layer) {
  const TensorNames::Layer& names = names_of(layer);
  const auto D = static_cast<std::uint64_t>(description_.config.hidden_size);
  const IndexRange mlp = part_of(layer).mlp;
  const std::int64_t f = size_of(mlp);
  std::vector<RowBlock> blocks;
  if (description_.config.gated_mlp) blocks.push_back(mlp_rows(layer, &TensorNames::Layer::gate_proj, 0));
  const std::int64_t up = static_cast<std::int64_t>(blocks.size()) * f;
  blocks.push_back(mlp_rows(layer, &TensorNames::Layer::up_proj, up));
  Linear out = load_product(blocks, up + f, {0, D}, D);
  if (names.up_bias.empty()) return out;
  out.bias_N = allocate({up + f}, at::kFloat);
  if (up > 0) read(names.gate_bias, {0, 1}, mlp, out.bias_N.narrow(0, 0, f).unsqueeze(0));
  read(names.up_bias, {0, 1}, mlp, out.bias_N.narrow(0, up, f).unsqueeze(0));
  return out;
}

Xielu WeightSource::load_xielu(std::int64_t layer) {
  const TensorNames::Layer& names = names_of(layer);
  if (names.xielu_alpha_p.empty()) return {};
  const auto softplus = [&](const std::string& name) {
    return std::log1p(std::exp(load_vector(name, {0, 1}).item<float>()));
  };
  const std::string beta_name = names.xielu_number("beta");
  at::Tensor beta = at::full({1, 1}, Xielu::kBeta);
  if (file_.find(beta_name) != nullptr) read(beta_name, {0, 1}, {0, 1}, beta);
  Xielu out{true, softplus(names.xielu_alpha_p), Xielu::kBeta + softplus(names.xielu_alpha_n)};
  MAGISTER_CHECK(beta.item<float>() == Xielu::kBeta, ExitCode::kData,
                 "tensor {}: beta is {} (only an xIELU of 0.5 is computed, and results would be wrong); use another "
                 "model",
                 names.xielu_alpha_p, beta.item<float>());
  return out;
}

Linear WeightSource::load_down_proj(std::int64_t layer) {
  const TensorNames::Layer& names = names_of(layer);
  const auto width =
      static_cast<std::uint64_t>(description_.config.intermediate_size * description_.config.mlp_widths_of(layer));
  return load_partial(names.down_proj, part_of(layer).mlp, width, names.down_bias);
}

void WeightSource::verify_all_used() const {
  std::set<std::string> known(description_.names.ignored.begin(), description_.names.ignored.end());
  for (std::int64_t layer = 0; tp_rank_ > 0 && layer < description_.config.num_hidden_layers; ++layer) {
    for (const LayerParameter& row : layer_parameters(description_.config, layer)) {
      if (row.division == Division::kFirstShard) known.insert(row.name_in(names_of(layer)));
    }
  }
  for (const ModelParameter& row : model_parameters(description_.config)) {
    if (tp_rank_ > 0 && row.division == Division::kFirstShard) known.insert(row.name_in(description_.names));
  }
  const std::lock_guard lock(mutex_);
  for (const TensorInfo& info : file_.tensors()) {
    MAGISTER_CHECK(used_.contains(info.name) || known.contains(info.name), ExitCode::kData,
                   "tensor {} [{}] of the model was not loaded (results without it would be wrong); report this",
                   printable(info.name), fmt::join(info.shape, ", "));
  }
}

std::uint64_t WeightSource::loaded_bytes() const {
  const std::lock_guard lock(mutex_);
  return loaded_bytes_;
}

std::uint64_t WeightSource::shared_bytes() const {
  const std::lock_guard lock(mutex_);
  return shared_bytes_;
}

}  // namespace magister
