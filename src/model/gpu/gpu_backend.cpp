// Loads weights onto the device, and plans the memory of a pass there.
#include "model/gpu/gpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/device/staged_upload.h"
#include "magister/model/rope.h"
#include "magister/parallel/thread_pool.h"
#include "model/gpu/altup_kernels.h"
#include "model/gpu/gpu_encoder.h"
#include "model/gpu/gpu_mxfp4.h"
#include "model/gpu/prompt_rule.h"

namespace magister {
namespace gpu {

namespace {

std::shared_ptr<const GpuWeights> made(const ModelConfig& config, const ProcessGroup& group, at::ScalarType dtype,
                                       const Queue& queue, const std::function<void(GpuWeights&)>& fill) {
  const auto weights = shared_on_device(GpuWeights::empty(config, group, dtype, queue), queue);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  fill(*weights);
  const auto filled = Clock::now();
  weights->find_tile_sizes(queue);
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  log_local(LogLevel::kDebug, "{:.2f} GB of weights read in {:.2f} s, products chosen in {:.2f} s",
            1e-9 * static_cast<double>(weights->num_bytes()), seconds(filled - begin), seconds(Clock::now() - filled));
  return weights;
}

}  // namespace

std::shared_ptr<const GpuWeights> load_gpu_weights(const ModelDescription& description, const TensorFile& file,
                                                   const ProcessGroup& group, ThreadPool& pool, at::ScalarType dtype,
                                                   const QuantScheme& quantization, const Queue& queue,
                                                   const LoadHook& hook) {
  return made(description.config, group, dtype, queue, [&](GpuWeights& weights) {
    WeightSource source(file, description, weights.partition, group.tp_rank(), weights.dtype, quantization, &pool,
                        hook);
    StagedUpload upload(weights.device, pool.num_threads());
    source.send_to(upload);
    weights.mxfp4 = keeps_mxfp4(description, file, dtype, quantization);
    weights.load(source, description.names.lm_head.empty(), queue);
    source.verify_all_used();
  });
}

std::shared_ptr<const GpuWeights> random_gpu_weights(const ModelConfig& config, const ProcessGroup& group,
                                                     at::ScalarType dtype, const QuantScheme& quantization,
                                                     const Queue& queue) {
  return made(config, group, dtype, queue, [&](GpuWeights& weights) { weights.randomize(quantization, queue); });
}

std::string describe_gpu_shard(const ProcessGroup& group, const Queue& queue) {
  return fmt::format("{} of {} on GPU {} with {}", group.tp_rank(), group.tp_size(), queue.device, group.backend());
}

GpuBackend::GpuBackend(std::shared_ptr<const GpuWeights> weights, ProcessGroup& group, const Queue& queue)
    : at_the_end_{queue},
      weights_(std::move(weights)),
      model_(weights_, queue, group),
      lm_head_{{weights_->head.weight_NK, weights_->head.bias_N},
               weights_->partition.head_rows(weights_->config),
               weights_->config.head_outputs(),
               queue,
               weights_->config.final_logit_softcapping,
               weights_->head.fixed.defined() ? std::make_shared<const FixedProduct>(weights_->head.fixed) : nullptr} {}

at::Tensor GpuBackend::forward_reference(const PackedBatch&) {
  fail(ExitCode::kInternal, "the plain forward pass of a model on a GPU (only CPU models have one); report this");
}

}  // namespace gpu

namespace {

// The most of any layer of a shard, by a function of its shape and number.
std::uint64_t most_of_layers(const ModelConfig& config, const Partition& partition,
                             const std::function<std::int64_t(const LayerShape&, std::int64_t)>& numbers) {
  std::int64_t most = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    most = std::max(most, numbers(shape_of(config, partition, layer), layer));
  return static_cast<std::uint64_t>(most);
}

// Bytes of blocks of scores, in f64: scores of a block of queries over the longest sequence, and its keys and values, a
// copy for each query head. Also the pass's own keys and values, a copy for each query head.
std::uint64_t score_block_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                std::int64_t sequence_tokens, at::ScalarType dtype) {
  // Models without positions of their own have no longest sequence.
  const std::int64_t asked = std::max(num_tokens, sequence_tokens),
                     keys = config.alibi_max > 0 ? asked : std::min(asked, config.max_position_embeddings),
                     queries = std::min(num_tokens, gpu::kCappedQueries),
                     number_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  return most_of_layers(config, partition, [&](const LayerShape& shape, std::int64_t layer) -> std::int64_t {
    if (!gpu::needs_score_blocks(shape, config.has_sinks(layer)) || gpu::flash_computes(shape, dtype)) return 0;
    const std::int64_t of_head = shape.head_dim + shape.value_dim();
    return shape.heads *
           (static_cast<std::int64_t>(sizeof(double)) * keys * (gpu::kCappedCopies * queries + 2 * of_head) +
            num_tokens * of_head * number_bytes);
  });
}

// Numbers of a token in attention: queries, keys and values, outputs, and keys and values once more where a pass shares
// prefixes.
std::uint64_t attention_numbers(const ModelConfig& config, const Partition& partition) {
  const std::uint64_t of_layer = most_of_layers(config, partition, [&](const LayerShape& shape, std::int64_t layer) {
    const std::int64_t E = shape.head_dim, V = shape.value_dim(), H = shape.heads, K = shape.kv_heads,
                       given = gpu::repeated_keys(shape) > 0 ? (H + K) * E : 0,
                       padded = V < E ? (H + K) * E : 0,      // values as wide as keys, and their outputs
        corrected = config.has_sinks(layer) ? 3 * H * V : 0;  // outputs without the sink, once in f32
    return shape.qkv_features() + H * V + K * (E + V) + given + padded + corrected + shape.gate_numbers;
  });
  // Rows of layers of both kinds whose keys and values later layers read.
  const std::uint64_t kept =
      most_of_layers(config, partition, [](const LayerShape& shape, std::int64_t) { return shape.qkv_features(); });
  return of_layer + (config.shared_kv_layers > 0 ? 2 * kept : 0);
}

}  // namespace

std::string missing_on_gpus(const ModelConfig& config) {
  if (config.altup && config.altup->inputs > gpu::kMostStreams) return "AltUp with more than 4 vectors";
  if (config.delta) return "linear attention";
  return "";
}

void check_gpu_computes(const ModelConfig& config) {
  const std::string missing = missing_on_gpus(config);
  MAGISTER_CHECK(missing.empty(), ExitCode::kConfig,
                 "a model of the family {} on a GPU ({} is computed on CPUs alone, and results without it would be "
                 "wrong); set layout.devices: cpu",
                 config.family, missing);
}

std::uint64_t gpu_activation_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                   std::int64_t sequence_tokens, at::ScalarType factors) {
  const at::ScalarType dtype = activation_dtype(factors);
  if (config.encoder) return gpu::gpu_encoder_bytes(config, num_tokens);
  const auto D = static_cast<std::uint64_t>(config.hidden_size);
  const std::uint64_t attention =
                          config.latent && config.latent->indexer ? 0
                          : config.latent
                              ? static_cast<std::uint64_t>(gpu::latent_pass_numbers(shape_of(config, partition, 0)))
                              : attention_numbers(config, partition),
                      widest = most_of_layers(config, partition,
                                              [](const LayerShape& shape, std::int64_t) { return shape.mlp; }),
                      mlp = 3 * std::max({widest, partition.expert.size(), partition.shared_expert.size()});
  const gpu::GpuStreamNumbers stream = gpu::gpu_stream_numbers(config);
  // With experts: the outputs of a token's experts (where one launch multiplies all experts, their columns, too) and
  // their sum, beside attention's output, which has not joined the stream; and the choices with their logits. An MLP
  // beside them adds its input and the router's. Parts of a sum over shards are f32.
  const std::uint64_t A = c10::elementSize(dtype);
  const bool divided = partition.heads.size() < static_cast<std::uint64_t>(config.num_attention_heads);
  const std::uint64_t O = divided ? sizeof(float) : A, routes = static_cast<std::uint64_t>(config.experts_a_token());
  const gpu::ExpertWidths widths = gpu::expert_widths(config, partition);
  const bool groups = gpu::groups_prompts(widths, factors);
  const std::uint64_t experts = config.num_experts == 0
                                    ? 0
                                    : (groups ? gpu::PromptExperts::token_bytes(widths, A, O) : routes * D * O) +
                                          32 * routes + (3 * O - sizeof(float)) * D +
                                          sizeof(float) * static_cast<std::uint64_t>(config.all_experts()) +
                                          (config.dense_beside_experts ? 2 * D * A : 0);
  // Normed rows of parallel blocks that have a norm each; positions of tokens.
  const std::uint64_t more = (config.parallel_norms ? c10::elementSize(dtype) * D : 0) +
                             (config.learned_positions || config.query_scale_beta > 0 ? 4 : 0);
  std::uint64_t sparse = 0;
  if (config.latent && config.latent->indexer) {
    const LayerShape shape = shape_of(config, partition, 0);
    sparse = static_cast<std::uint64_t>(num_tokens) * gpu::sparse_token_bytes(shape, dtype) +
             gpu::sparse_block_bytes(shape, std::max(num_tokens, sequence_tokens), dtype);
  }
  // Residual stream, normed rows, a product's output and its f32 copy for the sum over shards; ids, rotary rows and
  // slots. The padded last tile of a product comes in addition.
  return static_cast<std::uint64_t>(num_tokens) *
             (2 * sizeof(float) * D + c10::elementSize(dtype) * (2 * D + std::max({attention, mlp, stream.at_ends})) +
              experts + 16 + sizeof(float) * stream.kept + more) +
         static_cast<std::uint64_t>(gpu::kPassTile) * c10::elementSize(dtype) * (D + 2 * widest) +
         score_block_bytes(config, partition, num_tokens, sequence_tokens, dtype) + sparse +
         (groups ? gpu::PromptExperts::fixed_bytes(config, widths) : 0);
}

std::uint64_t gpu_rotary_bytes(const ModelConfig& config, std::int64_t num_tokens, std::int64_t sequence_tokens) {
  if (config.encoder) return 0;
  constexpr std::int64_t kStep = gpu::RopeOnDevice::kStep;
  const std::int64_t shared = std::max<std::int64_t>(1, std::min(sequence_tokens, positions_of_shared_rope(config)));
  const std::int64_t stay = (shared + kStep - 1) / kStep * kStep;
  // A sequence's own rows are appended to a copy of the shared ones.
  const std::int64_t passing = rope_needs_own_table(config, sequence_tokens) ? stay + 2 * num_tokens : 0;
  return static_cast<std::uint64_t>(stay + passing) * rope_row_bytes(config);
}

std::uint64_t gpu_gathered_bytes(const ModelConfig& config, const Partition& partition, std::int64_t num_tokens,
                                 std::int64_t sequence_tokens, at::ScalarType dtype) {
  // A pass of few tokens has few sequences. In larger passes, runs end before they have more keys, unless a single
  // sequence has more.
  const std::int64_t keys = std::max(sequence_tokens, std::min(gpu::kMostGatheredKeys, num_tokens * sequence_tokens));
  if (config.latent && config.latent->indexer) return 0;  // latents are gathered block by block
  if (config.latent) {
    const LayerShape shape = shape_of(config, partition, 0);
    const auto numbers = static_cast<std::uint64_t>(gpu::latent_gathered_numbers(shape));
    const std::uint64_t prompts =
        static_cast<std::uint64_t>(keys) * (numbers * c10::elementSize(dtype) + sizeof(std::int64_t));
    if (!gpu::absorbs_latents(config, dtype)) return prompts;
    return std::max(prompts,
                    gpu::latent_decoding_bytes(shape, std::min(num_tokens, kGpuDecodingRows), sequence_tokens));
  }
  // If groups are uneven, keys are copied for each head; if scores are computed in blocks, for all heads. Values that
  // are narrower than keys are copied once more, as wide as keys.
  const std::uint64_t numbers = most_of_layers(config, partition, [&](const LayerShape& shape, std::int64_t layer) {
    const std::int64_t E = shape.head_dim, V = shape.value_dim();
    const bool copies = !gpu::groups_are_even(shape) ||
                        (gpu::needs_score_blocks(shape, config.has_sinks(layer)) && !gpu::flash_computes(shape, dtype));
    const std::int64_t copied = copies ? shape.heads : 0;
    return (shape.kv_heads + copied) * (E + V) + (V < E ? std::max(shape.kv_heads, copied) * E : 0);
  });
  return static_cast<std::uint64_t>(keys) * (numbers * c10::elementSize(dtype) + sizeof(std::int64_t));
}

}  // namespace magister
