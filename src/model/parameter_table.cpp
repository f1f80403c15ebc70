// Rows in the order in which a layer uses them; weights that a family lacks have no row.
// Sources: transformers' modules of the families here (the family's file has the names that differ); ggml GGUF
// specification, standard tensor names.
#include "magister/model/parameter_table.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "model/encoder_parameters.h"

namespace magister {

std::vector<std::int64_t> LayerParameter::shape_in(const TensorNames& names) const {
  std::vector<std::int64_t> all = stored.empty() ? shape : stored;
  if (names.transposed_products && product != FusedProduct::kNone) std::swap(all[0], all[1]);
  return all;
}

std::vector<LayerParameter> expert_parameters(const ModelConfig& config, std::int64_t expert) {
  using Expert = TensorNames::Layer::Expert;
  const std::int64_t D = config.hidden_size, F = config.expert_columns(expert), X = config.num_experts;
  using enum Division;
  constexpr FusedProduct kBias = FusedProduct::kNone;
  // fused: the name in files that hold gate and up as one tensor, in which gate and up take turns.
  const auto row = [&](std::string Expert::* name, const char* hf, const char* gguf, const char* fused,
                       std::vector<std::int64_t> shape, Division division, FusedProduct product) {
    LayerParameter out{nullptr, hf, gguf, std::move(shape), division, product};
    out.expert = expert;
    out.expert_name = name;
    const std::int64_t rows = out.shape.front();
    if (config.fused_experts && expert < X) {
      const bool up = name == &Expert::up_proj || name == &Expert::up_bias, halves = config.fused_experts_in_halves;
      const std::int64_t width = division == kExpertRows ? 2 * rows : rows;
      out.hf = fused;
      out.row_step = division == kExpertRows && !halves ? 2 : 1;
      out.stored = {X, width};
      if (product != kBias) out.stored.insert(out.stored.begin() + 1, out.shape.back());
      out.first_row = expert * width + (!up ? 0 : halves ? rows : 1);
    } else if (config.stacked_experts) {
      const bool two = config.fused_gate_up_proj && product == FusedProduct::kGateUp;
      if (two) out.hf = fused;
      out.stored = out.shape;
      out.stored.front() *= two ? 2 : 1;
      out.first_row = expert * out.stored.front() + (two && name == &Expert::up_proj ? rows : 0);
      out.stored.insert(out.stored.begin(), X);
    }
    if (expert >= X) {  // shared experts: columns of one MLP
      const std::int64_t number = expert - X, all = config.num_shared_experts;
      const bool down = name == &Expert::down_proj, up = name == &Expert::up_proj;
      const bool two = config.fused_shared_experts && !down;
      out.hf = down  ? "mlp.shared_experts.down_proj.weight"
               : two ? "mlp.shared_experts.gate_up_proj.weight"
               : up  ? "mlp.shared_experts.up_proj.weight"
                     : "mlp.shared_experts.gate_proj.weight";
      out.division = down ? kSharedExpertColumns : kSharedExpertRows;
      out.stored = out.shape;
      out.stored[down ? 1 : 0] *= two ? 2 * all : all;
      out.first_row = 0;
      (down ? out.first_column : out.first_row) = (number + (two && up ? all : 0)) * F;
    }
    return out;
  };
  std::vector<LayerParameter> all = {row(&Expert::gate_proj, "mlp.experts.{}.gate_proj.weight", "ffn_gate_exps.weight",
                                         "mlp.experts.gate_up_proj", {F, D}, kExpertRows, FusedProduct::kGateUp),
                                     row(&Expert::up_proj, "mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight",
                                         "mlp.experts.gate_up_proj", {F, D}, kExpertRows, FusedProduct::kGateUp),
                                     row(&Expert::down_proj, "mlp.experts.{}.down_proj.weight", "ffn_down_exps.weight",
                                         "mlp.experts.down_proj", {D, F}, kExpertColumns, FusedProduct::kDown)};
  if (!config.expert_bias) return all;
  all.push_back(row(&Expert::gate_bias, "mlp.experts.{}.gate_proj.bias", "ffn_gate_exps.bias",
                    "mlp.experts.gate_up_proj_bias", {F}, kExpertRows, kBias));
  all.push_back(row(&Expert::up_bias, "mlp.experts.{}.up_proj.bias", "ffn_up_exps.bias",
                    "mlp.experts.gate_up_proj_bias", {F}, kExpertRows, kBias));
  all.push_back(row(&Expert::down_bias, "mlp.experts.{}.down_proj.bias", "ffn_down_exps.bias",
                    "mlp.experts.down_proj_bias", {D}, kFirstShard, kBias));
  return all;
}

namespace {

// Norms of an MLP and of the experts beside it, and the numbers of their router.
std::vector<LayerParameter> rows_beside_experts(const ModelConfig& config) {
  using Layer = TensorNames::Layer;
  const std::int64_t D = config.hidden_size;
  return {{&Layer::dense_output_norm, "post_feedforward_layernorm_1.weight", "", {D}},
          {&Layer::experts_input_norm, "pre_feedforward_layernorm_2.weight", "", {D}},
          {&Layer::experts_output_norm, "post_feedforward_layernorm_2.weight", "", {D}},
          {&Layer::router_scale, "router.scale", "", {D}},
          {&Layer::expert_scales, "router.per_expert_scale", "", {config.num_experts}}};
}

// Weights of a layer outside attention and MLP. Every shard holds all of them.
std::vector<LayerParameter> rows_around_blocks(const ModelConfig& config) {
  using Layer = TensorNames::Layer;
  const std::int64_t D = config.hidden_size, P = config.per_layer_width;
  const Division whole = Division::kWhole;
  std::vector<LayerParameter> all;
  if (config.layer_scalar) all.push_back({&Layer::layer_scalar, "layer_scalar", "", {1}});
  if (P > 0) {
    all.push_back(
        {&Layer::per_layer_gate, "per_layer_input_gate.weight", "", {P, D}, whole, FusedProduct::kPerLayerGate});
    all.push_back(
        {&Layer::per_layer_output, "per_layer_projection.weight", "", {D, P}, whole, FusedProduct::kPerLayerOutput});
    all.push_back({&Layer::per_layer_output_norm, "post_per_layer_input_norm.weight", "", {D}});
  }
  if (const std::int64_t rank = config.laurel_rank; rank > 0) {
    all.push_back({&Layer::laurel_left, "laurel.linear_left.weight", "", {rank, D}, whole, FusedProduct::kLaurelLeft});
    all.push_back(
        {&Layer::laurel_right, "laurel.linear_right.weight", "", {D, rank}, whole, FusedProduct::kLaurelRight});
    all.push_back({&Layer::laurel_norm, "laurel.post_laurel_norm.weight", "", {D}});
  }
  if (config.altup) {
    const std::int64_t A = config.altup->inputs;
    all.push_back({&Layer::altup_router, "altup.modality_router.weight", "", {A, D}});
    all.push_back({&Layer::altup_router_norm, "altup.router_norm.weight", "", {D}});
    all.push_back({&Layer::altup_prediction, "altup.prediction_coefs.weight", "", {A * A, A}});
    all.push_back({&Layer::altup_correction, "altup.correction_coefs.weight", "", {A, A}});
    all.push_back({&Layer::altup_scale, "altup.correct_output_scale", "", {D}});
  }
  return all;
}

// Weights outside the layers: those of which vectors by layer are made, where shard 0 adds products of embeddings, and
// AltUp's products of the stream.
void add_stream_parameters(const ModelConfig& config, std::vector<ModelParameter>& all) {
  const std::int64_t D = config.hidden_size, P = config.per_layer_width, N = config.num_hidden_layers;
  if (P > 0) {
    all.push_back({&TensorNames::per_layer_table,
                   "model.embed_tokens_per_layer.weight",
                   "",
                   {config.per_layer_vocab, N * P},
                   Division::kVocabRows});
    all.push_back({&TensorNames::per_layer_projection,
                   "model.per_layer_model_projection.weight",
                   "",
                   {N * P, D},
                   Division::kFirstShard});
    all.push_back(
        {&TensorNames::per_layer_norm, "model.per_layer_projection_norm.weight", "", {P}, Division::kFirstShard});
  }
  for (std::int64_t i = 1; config.altup && i < config.altup->inputs; ++i) {
    const auto number = static_cast<std::size_t>(i - 1);
    using Names = TensorNames;
    all.push_back({nullptr,
                   "model.altup_projections.{}.weight",
                   "",
                   {D, D},
                   Division::kWhole,
                   &Names::altup_projections,
                   number});
    all.push_back({nullptr,
                   "model.altup_unembed_projections.{}.weight",
                   "",
                   {D, D},
                   Division::kWhole,
                   &Names::altup_unembeddings,
                   number});
  }
}

}  // namespace

std::vector<LayerParameter> layer_parameters(const ModelConfig& config, std::int64_t layer) {
  if (config.encoder) return encoder_layer_parameters(config);
  using Layer = TensorNames::Layer;
  const std::int64_t D = config.hidden_size, F = config.intermediate_size * config.mlp_widths_of(layer);
  const bool linear = config.is_linear(layer);
  const std::int64_t E = config.head_dim_of(layer), Q = config.num_attention_heads * E,
                     K = config.kv_heads_of(layer) * E, V = config.kv_heads_of(layer) * config.value_dim_of(layer);
  const bool has_keys = config.has_own_kv(layer), has_values = has_keys && !config.keys_are_values(layer);
  std::vector<LayerParameter> all;
  const auto add = [&all](bool present, LayerParameter row) {
    if (present) all.push_back(std::move(row));
  };
  const bool on_input = config.norm_placement != NormPlacement::kOutput,
             on_output = config.norm_placement != NormPlacement::kInput;
  const bool weighted = on_input && !config.weightless_norms;
  add(weighted, {&Layer::attention_input_norm, "input_layernorm.weight", "attn_norm.weight", {D}});
  add(on_input && config.norm_bias, {&Layer::attention_input_norm_bias, "input_layernorm.bias", "attn_norm.bias", {D}});
  // Weights of one product, or their biases. Some files hold them as one tensor with this name (fused).
  const auto add_product = [&](bool fused, std::vector<LayerParameter> rows, const char* hf, const char* gguf) {
    std::int64_t sum = 0;
    for (LayerParameter& row : rows) {
      row.first_row = fused ? sum : 0;
      sum += row.shape[0];
    }
    for (LayerParameter& row : rows) {
      if (fused) {
        row.hf = hf;
        row.gguf = gguf;
        row.stored = row.shape;
        row.stored[0] = sum;
      }
      add(true, std::move(row));
    }
  };
  using enum Division;
  constexpr FusedProduct kQkv = FusedProduct::kQkv, kGateUp = FusedProduct::kGateUp;
  const auto add_mlp = [&] {
    const LayerParameter up{&Layer::up_proj, "mlp.up_proj.weight", "ffn_up.weight", {F, D}, kMlpRows, kGateUp};
    if (config.gated_mlp) {
      add_product(config.fused_gate_up_proj && !config.dense_beside_experts && config.num_experts == 0,
                  {{&Layer::gate_proj, "mlp.gate_proj.weight", "ffn_gate.weight", {F, D}, kMlpRows, kGateUp}, up},
                  "mlp.gate_up_proj.weight", "ffn_up.weight");
    } else {
      add(true, up);
    }
    add(config.mlp_bias && config.gated_mlp,
        {&Layer::gate_bias, "mlp.gate_proj.bias", "ffn_gate.bias", {F}, Division::kMlpRows});
    add(config.mlp_bias, {&Layer::up_bias, "mlp.up_proj.bias", "ffn_up.bias", {F}, Division::kMlpRows});
    add(config.xielu, {&Layer::xielu_alpha_p, "mlp.act_fn.alpha_p", "", {1}});
    add(config.xielu, {&Layer::xielu_alpha_n, "mlp.act_fn.alpha_n", "", {1}});
    add(true, {&Layer::down_proj,
               "mlp.down_proj.weight",
               "ffn_down.weight",
               {D, F},
               Division::kMlpColumns,
               FusedProduct::kDown});
    add(config.mlp_bias, {&Layer::down_bias, "mlp.down_proj.bias", "ffn_down.bias", {D}, Division::kFirstShard});
  };
  const auto add_qkv = [&](std::vector<LayerParameter> rows, const char* hf, const char* gguf) {
    rows.resize(has_values ? 3 : has_keys ? 2 : 1);
    add_product(config.fused_qkv_proj, std::move(rows), hf, gguf);
  };
  const std::int64_t gates = config.gate_numbers(layer);
  // Rows of the gate beside those of the queries, head by head.
  const auto beside = [&](LayerParameter row, std::int64_t first_row) {
    if (!config.gate_beside_queries) return row;
    row.hf = "self_attn.q_proj.weight";
    row.gguf = "attn_q.weight";
    row.stored = {Q + gates, D};
    row.first_row = first_row;
    row.group_rows = E;
    row.group_step = 2 * E;
    return row;
  };
  if (linear) {
    for (LayerParameter& row : delta_parameters(config)) add(true, std::move(row));
  } else if (config.latent) {
    for (LayerParameter& row : latent_parameters(config, layer)) add(true, std::move(row));
  } else {
    add_qkv({beside({&Layer::q_proj, "self_attn.q_proj.weight", "attn_q.weight", {Q, D}, kHeadRows, kQkv}, 0),
             {&Layer::k_proj, "self_attn.k_proj.weight", "attn_k.weight", {K, D}, kKvHeadRows, kQkv},
             {&Layer::v_proj, "self_attn.v_proj.weight", "attn_v.weight", {V, D}, kKvHeadRows, kQkv}},
            "self_attn.qkv_proj.weight", "attn_qkv.weight");
  }
  if (config.qkv_bias && !config.latent && !linear) {
    add_qkv({{&Layer::q_bias, "self_attn.q_proj.bias", "attn_q.bias", {Q}, kHeadRows},
             {&Layer::k_bias, "self_attn.k_proj.bias", "attn_k.bias", {K}, kKvHeadRows},
             {&Layer::v_bias, "self_attn.v_proj.bias", "attn_v.bias", {V}, kKvHeadRows}},
            "self_attn.qkv_proj.bias", "attn_qkv.bias");
  }
  const bool of_all = config.qk_norm_of_all_heads, normed = config.qk_norm && !linear;
  add(normed,
      {&Layer::q_norm, "self_attn.q_norm.weight", "attn_q_norm.weight", {of_all ? Q : E}, of_all ? kHeadRows : kWhole});
  add(normed && has_keys, {&Layer::k_norm,
                           "self_attn.k_norm.weight",
                           "attn_k_norm.weight",
                           {of_all ? K : E},
                           of_all ? kKvHeadRows : kWhole});
  const bool centred = normed && config.qk_layer_norm;
  add(centred, {&Layer::q_norm_bias, "self_attn.q_norm.bias", "attn_q_norm.bias", {E}});
  add(centred, {&Layer::k_norm_bias, "self_attn.k_norm.bias", "attn_k_norm.bias", {E}});
  add(config.has_sinks(layer),
      {&Layer::sinks, "self_attn.sinks", "attn_sinks.weight", {config.num_attention_heads}, kHeads});
  add(gates > 0 && !linear, beside({&Layer::attention_gate,
                                    "self_attn.gate_proj.weight",
                                    "",
                                    {gates, D},
                                    kHeadRows,
                                    FusedProduct::kAttentionGate},
                                   E));
  add(true, {&Layer::o_proj,
             linear ? "linear_attn.out_proj.weight" : "self_attn.o_proj.weight",
             "attn_output.weight",
             {D, config.heads_of(layer) * (config.latent ? config.latent->value_dim : config.value_dim_of(layer))},
             Division::kHeadColumns,
             FusedProduct::kOutput});
  add(config.o_bias && !linear,
      {&Layer::o_bias, "self_attn.o_proj.bias", "attn_output.bias", {D}, Division::kFirstShard});
  add(on_output, {&Layer::attention_output_norm, "post_attention_layernorm.weight", "post_attention_norm.weight", {D}});
  // In Llama's files, the norm on the MLP's input is named after the block before it.
  const bool own_norm = on_input && (!config.parallel_residual || config.parallel_norms);
  add(own_norm && config.norm_bias,
      {&Layer::mlp_input_norm_bias, "post_attention_layernorm.bias", "ffn_norm.bias", {D}});
  add(own_norm && weighted, {&Layer::mlp_input_norm,
                             on_output ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
                             "ffn_norm.weight",
                             {D}});
  const bool sparse = config.is_sparse(layer), dense_beside = sparse && config.dense_beside_experts;
  if (dense_beside) add_mlp();
  for (LayerParameter& row : dense_beside ? rows_beside_experts(config) : std::vector<LayerParameter>{})
    add(true, std::move(row));
  add(sparse, {&Layer::router, "mlp.gate.weight", "ffn_gate_inp.weight", {config.num_experts, D}});
  add(sparse && config.expert_bias, {&Layer::router_bias, "mlp.gate.bias", "ffn_gate_inp.bias", {config.num_experts}});
  LayerParameter choice{
      &Layer::router_choice_bias, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", {config.num_experts}};
  if (config.router.choice_bias_is_row) choice.stored = {1, config.num_experts};
  add(sparse && config.router.choice_bias, std::move(choice));
  add(sparse && config.shared_expert_gate,
      {&Layer::shared_expert_gate, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", {1, D}});
  for (std::int64_t expert = 0; sparse && expert < config.all_experts(); ++expert) {
    for (LayerParameter& row : expert_parameters(config, expert)) add(true, std::move(row));
  }
  if (!sparse) add_mlp();
  add(on_output || (sparse && config.sparse_norm),
      {&Layer::mlp_output_norm, "post_feedforward_layernorm.weight", "post_ffw_norm.weight", {D}});
  for (LayerParameter& row : rows_around_blocks(config)) add(true, std::move(row));
  return all;
}

std::vector<std::vector<LayerParameter>> products_of(const std::vector<LayerParameter>& table) {
  std::vector<std::vector<LayerParameter>> products;
  for (const LayerParameter& row : table) {
    if (row.product == FusedProduct::kNone) continue;
    // Biases may come between the rows of a product, but no rows of another product.
    const LayerParameter* before = products.empty() ? nullptr : &products.back().front();
    if (before == nullptr || before->product != row.product || before->expert != row.expert) products.emplace_back();
    products.back().push_back(row);
  }
  return products;
}

std::set<std::string> tensors_with_inputs_first(const ModelDescription& description) {
  std::set<std::string> names;
  if (!description.names.transposed_products) return names;
  for (std::size_t i = 0; i < description.names.layers.size(); ++i) {
    for (const LayerParameter& row : layer_parameters(description.config, static_cast<std::int64_t>(i))) {
      if (row.product != FusedProduct::kNone) names.insert(row.name_in(description.names.layers[i]));
    }
  }
  return names;
}

std::vector<ModelParameter> model_parameters(const ModelConfig& config) {
  if (config.encoder) return encoder_model_parameters(config);
  const std::int64_t D = config.hidden_size, V = config.vocab_size;
  std::vector<ModelParameter> all = {{&TensorNames::embed_tokens,
                                      "model.embed_tokens.weight",
                                      "token_embd.weight",
                                      {config.table_rows(), D},
                                      Division::kVocabRows}};
  if (config.embedding_norm && !config.weightless_norms) {
    all.push_back({&TensorNames::embed_norm, "model.embed_norm.weight", "token_embd_norm.weight", {D}});
    if (config.norm_bias)
      all.push_back({&TensorNames::embed_norm_bias, "model.embed_norm.bias", "token_embd_norm.bias", {D}});
  }
  add_stream_parameters(config, all);
  if (!config.weightless_norms) all.push_back({&TensorNames::norm, "model.norm.weight", "output_norm.weight", {D}});
  if (config.norm_bias) all.push_back({&TensorNames::norm_bias, "model.norm.bias", "output_norm.bias", {D}});
  if (config.learned_positions)
    all.push_back({&TensorNames::embed_positions,
                   "model.embed_positions.weight",
                   "position_embd.weight",
                   {config.position_rows(), D},
                   Division::kFirstShard});
  if (config.head_bias && !config.is_classifier())
    all.push_back({&TensorNames::lm_head_bias, "lm_head.bias", "output.bias", {V}, Division::kVocabRows});
  if (config.is_classifier()) {
    all.push_back({&TensorNames::lm_head, "score.weight", "", {config.head_outputs(), D}, Division::kWhole});
  } else if (!config.tie_word_embeddings) {
    all.push_back({&TensorNames::lm_head, "lm_head.weight", "output.weight", {V, D}, Division::kVocabRows});
  }
  return all;
}

std::uint64_t num_elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1},
                         [](std::uint64_t product, std::int64_t n) { return product * static_cast<std::uint64_t>(n); });
}

ShardSlice slice_of(const std::vector<std::int64_t>& shape, Division division, const Partition& partition,
                    HeadCounts all, int tp_rank) {
  const bool is_vector = shape.size() == 1;
  const IndexRange all_columns{0, static_cast<std::uint64_t>(shape.back())};
  const IndexRange all_rows{0, is_vector ? 1 : static_cast<std::uint64_t>(shape.front())};
  // Rows or columns of these of all heads, which share `total` evenly.
  const auto heads = [](IndexRange range, std::int64_t total, std::int64_t count) {
    const auto each = static_cast<std::uint64_t>(total / count);
    return IndexRange{range.begin * each, range.end * each};
  };
  // A bias is a vector: its entries are the rows.
  const auto of_rows = [&](IndexRange rows) {
    return is_vector ? ShardSlice{all_rows, rows} : ShardSlice{rows, all_columns};
  };
  switch (division) {
    case Division::kVocabRows: {
      const auto rows = static_cast<std::uint64_t>(shape.front());
      return of_rows({std::min(partition.vocab.begin, rows), std::min(partition.vocab.end, rows)});
    }
    case Division::kHeads:
      return of_rows(partition.heads);
    case Division::kHeadRows:
      return of_rows(heads(partition.heads, shape.front(), all.heads));
    case Division::kKvHeadRows:
      return of_rows(heads(partition.kv_heads, shape.front(), all.kv_heads));
    case Division::kMlpRows:
      return of_rows(partition.mlp);
    case Division::kHeadColumns:
      return {all_rows, heads(partition.heads, shape.back(), all.heads)};
    case Division::kMlpColumns:
      return {all_rows, partition.mlp};
    case Division::kExpertRows:
      return of_rows(partition.expert);
    case Division::kExpertColumns:
      return {all_rows, partition.expert};
    case Division::kSharedExpertRows:
      return of_rows(partition.shared_expert);
    case Division::kSharedExpertColumns:
      return {all_rows, partition.shared_expert};
    case Division::kFirstShard:
      return tp_rank == 0 ? ShardSlice{all_rows, all_columns} : ShardSlice{};
    case Division::kWhole:
      break;
  }
  return {all_rows, all_columns};
}

}  // namespace magister
