// CpuModel: one shard on a CPU: embeddings, decoder layers in fixed row tiles, last norm. With several shards, the
// group sums the partial products between the tiles. A single shard adds them directly to the residual stream where it
// can.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "model/cpu/cpu_weights.h"
#include "model/first_not_finite.h"
#include "model/model_backend.h"

namespace magister {

class CpuModel final : public ModelBackend {
 public:
  static constexpr std::int64_t kThinnedRows = 16 * LayerBuffers::kTileRows;  // see run_thinned()

  // group and pool are kept by reference.
  CpuModel(std::shared_ptr<const CpuWeights> weights, ProcessGroup& group, ThreadPool& pool)
      : held_(std::move(weights)), weights_(*held_), group_(group), pool_(pool) {}

  at::Tensor forward(const PackedBatch& batch, const std::function<bool()>& should_stop) override;
  at::Tensor forward(const PackedBatch& batch, const std::vector<BlockTable>& slots, KvCache& cache) override;
  KvCache make_cache(std::int64_t num_pages, std::int64_t num_texts) const override;
  at::Tensor logits(const at::Tensor& hidden_RD) const override {
    return logits_of(weights_.lm_head, hidden_RD, pool_);
  }
  at::Tensor forward_reference(const PackedBatch& batch) override;
  std::string first_not_finite(const PackedBatch& batch) override;
  void self_test() override;

  const LmHead& lm_head() const override { return weights_.lm_head; }
  const ModelConfig& config() const override { return weights_.config; }
  std::uint64_t weight_bytes() const override { return weights_.num_bytes; }
  const gpu::Queue* queue() const override { return nullptr; }
  // Rows of prompts and of texts multiply codes differently (RowKind).
  bool separates_prefill() const override { return weights_.has_codes; }
  bool narrows_last_layer() const override { return true; }
  bool shares_prefixes() const override { return !weights_.config.delta; }

 private:
  struct Pass;
  // A layer in two steps: attention up to its outputs, with the keys and values of all rows; and the rest of it, which
  // needs no other row than its own.
  void run_attention(const DecoderLayer& layer, Pass& pass, KvPages& pages, DeltaStates* states);
  void run_blocks(const DecoderLayer& layer, Pass& pass);
  void run_beside(const DecoderLayer& layer, Pass& pass);
  // The output of an MLP whose gates are compared with their mean, where this needs a sum over shards: rows in turns of
  // kThinnedRows. Collective over the group.
  void run_thinned(const FeedForward& mlp, Pass& pass);
  void run_tail(const DecoderLayer& layer, std::size_t number, Pass& pass);
  // With AltUp: the stream's vectors from the embeddings, and back to one; before a layer's blocks and after them.
  void begin_stream(Pass& pass);
  void end_stream(Pass& pass);
  void predict_stream(const DecoderLayer& layer, Pass& pass);
  void correct_stream(const DecoderLayer& layer, std::size_t number, Pass& pass);
  void compute_per_layer(Pass& pass);
  std::vector<KvPages> pass_pages(std::int64_t num_pages) const;
  at::Tensor reference_beside(const DecoderLayer& layer, const at::Tensor& hidden_TD) const;
  // places: by layer the number of its pages in kv. states: by layer, those of a cache; empty: sequences begin here.
  at::Tensor run_layers(const PackedBatch& batch, const std::vector<BlockTable>& slots, std::vector<KvPages>& kv,
                        const std::vector<std::size_t>& places, std::span<DeltaStates> states,
                        const std::function<bool()>& should_stop, FirstNotFinite* watch = nullptr);

  const std::shared_ptr<const CpuWeights> held_;
  const CpuWeights& weights_;
  ProcessGroup& group_;
  ThreadPool& pool_;
};

}  // namespace magister
