// Compares the rows of logits of both models, 64 at a time: two blocks [64, V] are all the logits in memory. Sums are
// double, in the order of the rows.
#include "magister/run/quantization_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/log_sum_exp.h"
#include "magister/core/units_of_measure.h"
#include "magister/engine/generator.h"
#include "magister/io/whole_file.h"
#include "magister/model/weights.h"
#include "magister/parallel/host_memory.h"
#include "magister/run/phase_times.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/run_log.h"
#include "magister/run/unit_samples.h"
#include "magister/runtime/device_group.h"
#include "magister/runtime/memory_plan.h"

namespace magister {
namespace {

constexpr std::int64_t kBatchTokens = 2048;
constexpr std::int64_t kRows = 64;

struct RowLoss {
  double kl = 0;                    // nats
  double plain = 0, quantized = 0;  // negative log-probability of the next token, if there is one
};

RowLoss row_loss(std::span<const float> plain_V, std::span<const float> quantized_V, TokenId target) {
  const double plain = log_sum_exp<float>(plain_V), quantized = log_sum_exp<float>(quantized_V);
  RowLoss loss;
  for (std::size_t i = 0; i < plain_V.size(); ++i) {
    const double p = plain_V[i] - plain, q = quantized_V[i] - quantized;
    loss.kl += std::exp(p) * (p - q);
  }
  if (target < 0) return loss;
  loss.plain = plain - plain_V[static_cast<std::size_t>(target)];
  loss.quantized = quantized - quantized_V[static_cast<std::size_t>(target)];
  return loss;
}

// The next token for each row of a batch, -1 at the end of a sequence.
std::vector<TokenId> targets_of(const PackedBatch& batch) {
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  std::vector<TokenId> targets(ids + 1, ids + batch.num_tokens());
  targets.push_back(-1);
  for (std::int64_t s = 1; s <= batch.num_sequences(); ++s)
    targets[static_cast<std::size_t>(batch.cu_seqlens[static_cast<std::size_t>(s)] - 1)] = -1;
  return targets;
}

// The sums over all rows.
struct Total {
  std::uint64_t rows = 0, targets = 0, prompts = 0, flips = 0;
  double kl = 0, plain = 0, quantized = 0, log_odds = 0;

  void add(const RowLoss& row, bool has_target) {
    ++rows;
    targets += has_target;
    kl += row.kl;
    plain += row.plain;
    quantized += row.quantized;
  }
  void add(const RowDecision& one, const RowDecision& other) {
    ++prompts;
    flips += one.choice != other.choice;
    log_odds += std::abs(one.log_odds - other.log_odds);
  }
  nlohmann::ordered_json figures() const {
    const double n = static_cast<double>(std::max<std::uint64_t>(targets, 1));
    const double without = std::exp(plain / n), with = std::exp(quantized / n);
    nlohmann::ordered_json out = {{"tokens", rows},
                                  {"predicted_tokens", targets},
                                  {"perplexity_unquantized", without},
                                  {"perplexity_quantized", with},
                                  {"perplexity_change", with / without - 1},
                                  {"mean_kl_nats", kl / static_cast<double>(std::max<std::uint64_t>(rows, 1))}};
    if (prompts == 0) return out;
    out["prompts"] = prompts;
    out["verdict_flips"] = flips;
    out["verdict_flip_share"] = static_cast<double>(flips) / static_cast<double>(prompts);
    out["mean_abs_log_odds_change"] = log_odds / static_cast<double>(prompts);
    return out;
  }
};

// The run's first tokens, in the order of its units. whole: no sequence is cut, and the first one is taken whatever its
// length.
std::vector<std::vector<TokenId>> first_sequences(const ResultsFile& file, std::int64_t most, bool whole) {
  std::vector<std::vector<TokenId>> sequences;
  std::int64_t tokens = 0;
  for (std::uint64_t index = 0; index < file.num_units() && tokens < most; ++index) {
    const Unit unit = file.unit(index);
    const std::vector<std::uint64_t> offset = sample_offsets(file, unit);
    for (std::size_t i = 0; i + 1 < offset.size() && tokens < most; ++i) {
      auto count = static_cast<std::int64_t>(offset[i + 1] - offset[i]);
      if (whole && tokens > 0 && count > most - tokens) return sequences;
      if (!whole) count = std::min(count, most - tokens);
      if (count == 0) continue;
      sequences.emplace_back(static_cast<std::size_t>(count));
      file.read("/tokens/id", offset[i], std::as_writable_bytes(std::span(sequences.back())));
      tokens += count;
    }
  }
  return sequences;
}

// The host memory that this rank needs while the first group holds its model without quantisation and the others load
// theirs.
std::uint64_t needed_bytes(const GpuGroup& group, const OpenModel& model) {
  std::uint64_t bytes = 0;
  for (int shard = 0; shard < group.shards_here(); ++shard) {
    const int tp_rank = (group.first_tp_rank() + shard) % group.tp_size();
    const bool first = group.group_index() == 0 && shard < group.tp_size();
    bytes += weight_bytes(model.description, *model.file, first ? model.plain_dtype : model.dtype, tp_rank,
                          group.tp_size(), first ? QuantScheme{} : model.quantization);
    bytes +=
        activation_bytes(model.description.config, partition_for(model.description.config, tp_rank, group.tp_size()),
                         kBatchTokens, group.threads_per_shard());
  }
  return bytes;
}

// The memory of the model without quantisation on a GPU, which holds nothing else at that time.
std::uint64_t needed_gpu_bytes(const GpuGroup& group, const OpenModel& model) {
  const auto weights = [&](int shard) {
    return weight_bytes(model.description, *model.file, model.plain_dtype, shard, group.tp_size(), {}, true);
  };
  // Pages for texts of 16 tokens or more.
  const auto tokens = static_cast<std::uint64_t>(kBatchTokens), pages = model.fp8_cache ? tokens / 16 : 0;
  return sum_of(device_memory(model.description.config, weights, group.tp_size(),
                              {.tokens = tokens, .sequence_tokens = model.fp8_cache ? tokens : 0}, pages,
                              GpuDemand{model.plain_dtype, false}));
}

bool memory_suffices(const Communicator& world, const GpuGroup& group, const OpenModel& model,
                     const std::string& task) {
  const Communicator host = world.split_by_host();
  const std::uint64_t needed = group.on_gpu() ? needed_gpu_bytes(group, model) : host.sum(needed_bytes(group, model));
  const std::uint64_t free =
      group.on_gpu() ? least_free_gpu_bytes(group.devices(), nullptr) : host.min(host_memory().free_bytes);
  const bool enough = world.min(static_cast<std::uint64_t>(needed + needed / 8 <= free)) != 0;
  if (!enough) {
    log_info(
        "{}: the loss of quantisation is not measured: without it the model needs more memory than is free (here {} of "
        "{}); measure it on a machine with more, or set quantization_loss to 0",
        task, format_bytes(needed), format_bytes(free));
  }
  return enough;
}

bool is_measured(const std::string& path, const nlohmann::ordered_json& identity) {
  std::ifstream file(path);
  const nlohmann::json read = file ? nlohmann::json::parse(file, nullptr, false) : nlohmann::json();
  if (!read.is_object()) return false;
  for (const auto& [key, value] : identity.items()) {
    if (!read.contains(key) || read.at(key) != nlohmann::json(value)) return false;
  }
  return true;
}

}  // namespace

std::optional<LossPlan> plan_quantization_loss(RunContext& context, const GpuGroup& group, LossQuestion question) {
  const bool quantized = question.model.quantization.on(),
             through_pages = question.model.fp8_cache && question.has_cache;
  if (question.tokens == 0) return std::nullopt;
  if (!quantized && !through_pages) {
    if (question.model.fp8_cache)
      log_info("{}: kv_cache: fp8 loses nothing here: the passes of this task have no cache", question.task);
    return std::nullopt;
  }
  LossPlan plan;
  plan.through_pages = through_pages;
  if (through_pages) plan.of = quantized ? "quantisation and 8-bit pages" : "8-bit pages";
  plan.task = question.task;
  plan.path = std::filesystem::path(context.results_path).replace_extension(".quantization.json").string();
  plan.plain_dtype = question.model.plain_dtype;
  plan.score = std::move(question.score);
  plan.log = &context.log;
  plan.identity = question.model.log_fields();
  plan.identity.erase("cpu_kernels");  // a measurement on one CPU is valid for another
  plan.identity["unquantized_dtype"] = dtype_name(plan.plain_dtype);
  plan.identity["asked_tokens"] = question.tokens;
  for (const auto& [name, value] : question.identity) {
    if (name != "config_sha256" && name != "model_sha256" && name != "dataset_sha256") continue;
    plan.identity[name] = std::get<std::string>(value);
  }
  const bool known = context.world.rank() == 0 && is_measured(plan.path, plan.identity);
  if (context.world.max(static_cast<std::uint64_t>(known)) != 0) return std::nullopt;
  if (!memory_suffices(context.world, group, question.model, plan.task) || group.group_index() != 0)
    return std::nullopt;
  plan.sequences = first_sequences(question.file, question.tokens, static_cast<bool>(plan.score));
  if (plan.sequences.empty()) return std::nullopt;
  return plan;
}

namespace {

// The two passes of one shard. Keeps references to plan, group and pool.
class QuantizationLoss {
 public:
  // Runs the model without quantisation and frees it, but keeps its head. between() is called on every shard before
  // each pass, and throws on all shards or on none. Collective over the group.
  QuantizationLoss(const LossPlan& plan, Transformer plain, ProcessGroup& group, ThreadPool& pool,
                   std::function<void()> between);
  // Runs the quantised model and compares; shard 0 prints, logs and writes. Collective over the group.
  void compare(Transformer& quantized);

 private:
  std::vector<at::Tensor> run(Transformer& model) const;

  const LossPlan& plan_;
  ProcessGroup& group_;
  ThreadPool& pool_;
  std::function<void()> between_;
  std::vector<PackedBatch> batches_;
  std::vector<at::Tensor> hidden_;  // of each batch, [T, D] f32
  LmHead head_;
};

QuantizationLoss::QuantizationLoss(const LossPlan& plan, Transformer plain, ProcessGroup& group, ThreadPool& pool,
                                   std::function<void()> between)
    : plan_(plan), group_(group), pool_(pool), between_(std::move(between)) {
  std::vector<std::vector<TokenId>> sequences;
  std::int64_t tokens = 0;
  for (const auto& sequence : plan.sequences) {
    const auto count = static_cast<std::int64_t>(sequence.size());
    if (!sequences.empty() && tokens + count > kBatchTokens) {
      batches_.push_back(pack_sequences(std::exchange(sequences, {})));
      tokens = 0;
    }
    sequences.push_back(sequence);
    tokens += count;
  }
  batches_.push_back(pack_sequences(sequences));
  hidden_ = run(plain);
  head_ = plain.lm_head();
}

// Whole texts through the pages of a cache of their own.
at::Tensor forward_through_pages(Transformer& model, const PackedBatch& batch) {
  std::vector<std::vector<std::int32_t>> pages;
  std::vector<BlockTable> slots;
  std::int32_t page = 0;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    pages.emplace_back();
    for (std::int64_t j = batch.cu_seqlens[s]; j < batch.cu_seqlens[s + 1]; j += KvPages::kSlots)
      pages.back().push_back(page++);
    slots.push_back({pages.back().data(), 0, s});
  }
  KvCache cache = model.make_cache(page, batch.num_sequences());
  return model.forward(batch, slots, cache).clone();
}

std::vector<at::Tensor> QuantizationLoss::run(Transformer& model) const {
  std::vector<at::Tensor> hidden;
  for (const PackedBatch& batch : batches_) {
    between_();
    hidden.push_back(plan_.through_pages ? forward_through_pages(model, batch) : model.forward(batch));
  }
  return hidden;
}

void QuantizationLoss::compare(Transformer& quantized) {
  const std::vector<at::Tensor> others = run(quantized);
  const std::vector<std::int64_t> widths = logit_widths(quantized.config(), group_.tp_size());
  Total total;
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    const std::vector<TokenId> targets = targets_of(batches_[b]);
    for (std::int64_t begin = 0; begin < batches_[b].num_tokens(); begin += kRows) {
      between_();
      const std::int64_t rows = std::min(kRows, batches_[b].num_tokens() - begin);
      const at::Tensor plain_RV =
          gather_logits(logits_of(head_, hidden_[b].narrow(0, begin, rows), pool_), widths, group_).cpu();
      const at::Tensor other_RV =
          gather_logits(logits_of(quantized.lm_head(), others[b].narrow(0, begin, rows), pool_), widths, group_).cpu();
      if (group_.tp_rank() != 0) continue;
      const auto V = static_cast<std::size_t>(plain_RV.size(1));
      const auto row_of = [V](const at::Tensor& all_RV, std::int64_t r) {
        return std::span<const float>(all_RV.const_data_ptr<float>() + static_cast<std::size_t>(r) * V, V);
      };
      std::vector<RowLoss> losses(static_cast<std::size_t>(rows));
      pool_.run(rows, [&](std::int64_t r, int) {
        losses[static_cast<std::size_t>(r)] =
            row_loss(row_of(plain_RV, r), row_of(other_RV, r), targets[static_cast<std::size_t>(begin + r)]);
      });
      for (std::int64_t r = 0; r < rows; ++r) {
        const bool has_target = targets[static_cast<std::size_t>(begin + r)] >= 0;
        total.add(losses[static_cast<std::size_t>(r)], has_target);
        if (plan_.score && !has_target) total.add(plan_.score(row_of(plain_RV, r)), plan_.score(row_of(other_RV, r)));
      }
    }
  }
  hidden_.clear();
  head_ = {};
  if (group_.tp_rank() != 0) return;
  const nlohmann::ordered_json figures = total.figures();
  nlohmann::ordered_json whole = {{"schema", 1}, {"task", plan_.task}};
  whole.update(plan_.identity);
  whole.update(figures);
  write_whole_file(plan_.path, whole.dump(2) + "\n");
  plan_.log->event("quantization_loss", whole);
  log_info("{}: loss of {} over {} tokens: perplexity {:.4f} -> {:.4f} ({:+.3f} %), mean KL {:.3g} nat a token{}",
           plan_.task, plan_.of, total.rows, figures["perplexity_unquantized"].get<double>(),
           figures["perplexity_quantized"].get<double>(), 100 * figures["perplexity_change"].get<double>(),
           figures["mean_kl_nats"].get<double>(),
           total.prompts == 0 ? ""
                              : fmt::format(", {} of {} verdicts changed, log-odds by {:.3g} on average", total.flips,
                                            total.prompts, figures["mean_abs_log_odds_change"].get<double>()));
}

}  // namespace

Transformer& load_and_measure_loss(const LossPlan& plan, ModelInstance& instance, PhaseTimes& times) {
  const auto between = [&instance] {
    instance.heartbeat("measure the loss");
    if (instance.stop_agreed()) throw Error(ExitCode::kStopped, "stopped");
  };
  std::optional<QuantizationLoss> loss;
  {
    const PhaseTimes::Span measuring(times, "measure the loss");
    loss.emplace(plan, instance.load_unquantized(), instance.group(), instance.pool(), between);
  }
  {
    const PhaseTimes::Span loading(times, "load");
    instance.load();
  }
  const PhaseTimes::Span measuring(times, "measure the loss");
  loss->compare(instance.model());
  return instance.model();
}

}  // namespace magister
