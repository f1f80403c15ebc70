// Built from the parameter table; see parameters.h.
#include "magister/train/parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"
#include "magister/parallel/thread_pool.h"

namespace magister {

namespace {

constexpr std::int64_t kAlignment = 16;  // numbers

// Returns whether weight decay applies, where the number of dimensions does not decide it. By the Trainer's rule a
// vector of factors is neither a norm nor a bias, and a table of all experts' biases is one. torch's AdamW leaves out
// what has no gradient.
std::optional<bool> decay_of(const LayerParameter& row, const ModelConfig& config) {
  using Layer = TensorNames::Layer;
  if (row.is_of_indexer()) return false;
  if (row.expert >= 0) return row.product == FusedProduct::kNone ? std::optional(false) : std::nullopt;
  if (row.name == &Layer::altup_scale) return config.altup->scales_corrected;
  for (std::string Layer::* const factors : {&Layer::sinks, &Layer::xielu_alpha_p, &Layer::xielu_alpha_n,
                                             &Layer::router_scale, &Layer::expert_scales, &Layer::delta_rate})
    if (row.name == factors) return true;
  return std::nullopt;
}

}  // namespace

at::Tensor as_rows(const at::Tensor& tensor) { return tensor.dim() == 1 ? tensor.unsqueeze(0) : tensor.flatten(0, -2); }

std::size_t FlatLayout::add(const std::string& name, const std::vector<std::int64_t>& shape, std::optional<bool> decays,
                            double limit) {
  const auto count = static_cast<std::int64_t>(num_elements(shape));
  all_.push_back({name, shape, flat_size_, count, decays.value_or(shape.size() > 1), limit});
  flat_size_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  return all_.size() - 1;
}

ParameterLayout::ParameterLayout(const ModelDescription& description) : description_(description) {
  const ModelConfig& config = description.config;
  const TensorNames& names = description.names;
  // Blocks that the trunk does not compute.
  const bool of_gguf = config.stacked_experts && !config.fused_gate_up_proj;
  const bool has_other_blocks = config.encoder || of_gguf;
  MAGISTER_CHECK(!has_other_blocks, ExitCode::kConfig,
                 "models of the family {} are not trained yet (their blocks are not differentiated); name a model of "
                 "another family, configs/guides/models.md lists them",
                 config.family);
  MAGISTER_CHECK(
      config.untrained_key.empty(), ExitCode::kConfig,
      "the model's config.json sets {} (in training transformers then {}, which is not computed here, so the "
      "result would differ); remove the key from config.json, or set it to {}",
      config.untrained_key,
      config.untrained_key.ends_with("jitter_noise") ? "multiplies the inputs of experts by random numbers"
                                                     : "adds a loss by which experts are used evenly",
      config.untrained_key.ends_with("jitter_noise") ? "0" : "false");
  MAGISTER_CHECK(description.outer_type.empty() || !names.other_parts.empty(), ExitCode::kConfig,
                 "the model is the text decoder of a {}, whose image encoder is not in its folder (no program could "
                 "load the trained folder); use the whole model",
                 description.outer_type);
  for (const ModelParameter& row : model_parameters(config)) {
    if (row.name == &TensorNames::embed_tokens) embeddings_ = head_ = add(row.name_in(names), row.shape);
    if (row.name == &TensorNames::embed_positions) positions_ = add(row.name_in(names), row.shape);
  }
  if (config.per_layer_width > 0) per_layer_.emplace();
  for (const ModelParameter& row : model_parameters(config)) {
    if (row.name == &TensorNames::per_layer_table) per_layer_->table = add(row.name_in(names), row.shape);
    if (row.name == &TensorNames::per_layer_projection) per_layer_->projection = add(row.name_in(names), row.shape);
    if (row.name == &TensorNames::per_layer_norm) per_layer_->norm = add(row.name_in(names), row.shape);
  }
  for (std::size_t i = 0; i < names.layers.size(); ++i) {
    Layer& layer = layers_.emplace_back();
    layer.table = layer_parameters(config, static_cast<std::int64_t>(i));
    std::map<std::string, std::size_t> holders;
    for (const LayerParameter& row : layer.table) {
      const std::string& name = row.name_in(names.layers[i]);
      const auto [holder, is_new] = holders.emplace(name, layer.parameters.size());
      const double limit = row.name == &TensorNames::Layer::altup_prediction ? config.altup->coef_clip : 0.0;
      if (is_new) layer.parameters.push_back(add(name, row.shape_in(names), decay_of(row, config), limit));
      layer.holder.push_back(holder->second);
    }
    for (const ModelParameter& row : model_parameters(config)) {
      if (i == 0 && (row.name == &TensorNames::embed_norm || row.name == &TensorNames::embed_norm_bias ||
                     row.kind == &TensorNames::altup_projections))
        layer.parameters.push_back(add(row.name_in(names), row.shape));
    }
  }
  for (const ModelParameter& row : model_parameters(config)) {
    if (row.name == &TensorNames::norm || row.name == &TensorNames::norm_bias)
      norm_.push_back(add(row.name_in(names), row.shape));
    if (row.name == &TensorNames::lm_head) head_ = add(row.name_in(names), row.shape);
    if (row.name == &TensorNames::lm_head_bias) head_bias_ = add(row.name_in(names), row.shape);
  }
  for (const ModelParameter& row : model_parameters(config)) {
    if (row.kind == &TensorNames::altup_unembeddings) norm_.push_back(add(row.name_in(names), row.shape));
  }
}

std::int64_t FlatLayout::num_parameters() const {
  std::int64_t sum = 0;
  for (const TrainParameter& parameter : all_) sum += parameter.count;
  return sum;
}

at::Tensor FlatLayout::view(const at::Tensor& flat, std::size_t index) const {
  const TrainParameter& parameter = all_[index];
  return flat.narrow(0, parameter.offset, parameter.count).view(parameter.shape);
}

namespace {

void draw_normal(at::Tensor& out, const NewHead& head) {
  const std::uint64_t key = splitmix64(splitmix64(head.seed ^ 0x68656164));  // "head": another stream than the epochs'
  auto* values = out.data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = static_cast<float>(head.deviation * normal_number(key + static_cast<std::uint64_t>(i)));
}

// A range of rows of one parameter.
struct RowsOfOne {
  std::size_t parameter;
  std::int64_t begin, end;
};

// Ranges of about 4 MB in f32: all threads share the first writes, which map host memory page by page, and the
// conversion of numbers.
void add_rows(std::size_t parameter, const at::Tensor& rows_NK, std::vector<RowsOfOne>& into) {
  constexpr std::int64_t kNumbers = 1 << 20;
  const std::int64_t rows = rows_NK.size(0),
                     step = std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, rows_NK.size(1)));
  for (std::int64_t row = 0; row < rows; row += step) into.push_back({parameter, row, std::min(row + step, rows)});
}

// numbers: contiguous f32.
bool all_finite(const at::Tensor& numbers) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  const float* const data = numbers.const_data_ptr<float>();
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < numbers.numel(); ++i)
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(data[i]) & kExponent) == kExponent);
  return bad == 0;
}

}  // namespace

void ParameterLayout::read(const TensorFile& file, at::Tensor& flat, const NewHead& new_head, ThreadPool* pool,
                           int part, int parts) const {
  std::vector<RowsOfOne> all_rows;
  for (std::size_t i = 0; i < all().size(); ++i) {
    at::Tensor out = as_rows(view(flat, i));
    if (i == head_ && description_.config.is_classifier() && file.find(all()[i].name) == nullptr) {
      if (part == 0) draw_normal(out, new_head);
    } else {
      add_rows(i, out, all_rows);
    }
  }
  const auto count = static_cast<std::int64_t>(all_rows.size()), first = count * part / parts;
  on_threads(pool, count * (part + 1) / parts - first, [&](std::int64_t index) {
    const RowsOfOne& rows = all_rows[static_cast<std::size_t>(first + index)];
    const TrainParameter& parameter = all()[rows.parameter];
    const at::Tensor out = as_rows(view(flat, rows.parameter)).narrow(0, rows.begin, rows.end - rows.begin);
    file.read(parameter.name, rows.begin, rows.end, 0, out.size(1), out);
    MAGISTER_CHECK(all_finite(out), ExitCode::kData,
                   "tensor {} holds a number that is not finite (every loss would be NaN); start from other weights",
                   printable(parameter.name));
  });
}

}  // namespace magister
