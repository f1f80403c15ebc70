// Scores of one query and all keys before it, page by page, and the selection of the best. The sum of a score has the
// same order in every pass: the indexer's heads in turn.
#include "model/cpu/indexer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/page_runs.h"

namespace magister {

void Indexer::project(const float* input_RD, const float* short_RL, std::int64_t stride, std::int64_t begin,
                      std::int64_t end, const RopeRows& rope, float* keys_RE, LayerBuffers& buffers,
                      ThreadPool* pool) const {
  const std::int64_t rows = end - begin, D = weights_.k_proj.in_features(), E = config_.head_dim, I = config_.heads;
  linear_tile(input_RD, D, rows, weights_.k_proj, keys_RE, E, false, pool, buffers.kind);
  block_input(weights_.k_norm, static_cast<float>(IndexerConfig::kNormEps), keys_RE, keys_RE, rows, E);
  const auto turn = [&](float* head, std::int64_t r) {
    cpu_kernels().rope(head, rope.cos[begin + r], rope.sin[begin + r], rope_dim_ / 2);
  };
  for (std::int64_t r = 0; r < rows; ++r) turn(keys_RE + r * E, r);
  if (!buffers.chosen_Tk.defined()) return;
  float* q_RQ = buffers.index_queries_TQ.data_ptr<float>() + begin * I * E;
  linear_tile(short_RL, stride, rows, weights_.q_proj, q_RQ, I * E, false, pool, buffers.kind);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t head = 0; head < I; ++head) turn(q_RQ + (r * I + head) * E, r);
  }
  linear_tile(input_RD, D, rows, weights_.head_proj, buffers.index_weights_TI.data_ptr<float>() + begin * I, I, false,
              pool, buffers.kind);
}

void Indexer::choose(std::int64_t row, std::int64_t position, const BlockTable& sequence, const KvPages& pages,
                     LayerBuffers& buffers) const {
  constexpr std::int64_t kSlots = KvPages::kSlots;
  const auto& multiply = cpu_kernels().multiply[static_cast<int>(WeightFormat::kF32)];
  const std::int64_t I = config_.heads, E = config_.head_dim, keys = position + 1;
  const float* q_IE = buffers.index_queries_TQ.const_data_ptr<float>() + row * I * E;
  const float* weights_I = buffers.index_weights_TI.const_data_ptr<float>() + row * I;
  std::vector<float> scores(static_cast<std::size_t>(keys), 0.0f), products(static_cast<std::size_t>(I * kSlots));
  for_pages(sequence, 0, keys, false,
            [&](std::int64_t page, std::int64_t slot, std::int64_t first, std::int64_t count) {
              multiply({q_IE, E, I, pages.key_page(0, page) + slot, kSlots, E, products.data(), kSlots, count});
              float* sums = scores.data() + first;
              for (std::int64_t head = 0; head < I; ++head) {
                const float* of_head = products.data() + head * kSlots;
                for (std::int64_t key = 0; key < count; ++key)
                  sums[key] += weights_I[head] * std::max(of_head[key], 0.0f);
              }
            });
  choose_best(scores.data(), keys, config_.top_k,
              buffers.chosen_Tk.data_ptr<std::int32_t>() + row * buffers.chosen_Tk.size(1));
}

void choose_best(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* out) {
  // A score that is not a number counts as the least: comparisons need an order.
  const auto order = [](float score) { return score == score ? score : -std::numeric_limits<float>::infinity(); };
  std::vector<float> sorted(static_cast<std::size_t>(n));
  std::transform(scores, scores + n, sorted.begin(), order);
  const auto last = sorted.begin() + (k - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  const float least = *last;
  std::int64_t equal = std::count(sorted.begin(), last + 1, least);  // so many of those with the least score are chosen
  for (std::int64_t i = 0; i < n; ++i) {
    const float score = order(scores[i]);
    if (score > least || (score == least && equal-- > 0)) *out++ = static_cast<std::int32_t>(i);
  }
}

}  // namespace magister
