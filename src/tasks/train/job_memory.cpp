// The memory of a training: the demand, the limit by train.memory_fraction, and what is given up if the limit is too
// small. First activations are recomputed in the backward pass, then fewer micro-batches are computed at once. The
// results have the same bits each time; see job.h.
#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/host_name.h"
#include "magister/core/units_of_measure.h"
#include "magister/device/gpu.h"
#include "magister/parallel/device_exchange.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/parallel/host_memory.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/thread_pool.h"
#include "magister/runtime/device_group.h"
#include "magister/runtime/open_model.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/grpo_texts.h"
#include "tasks/train/job.h"

namespace magister {
namespace {

// A smaller state is on disk within some hundredths of a second.
constexpr std::uint64_t kLeastCopied = 16 << 20;

// A share of total, at most free.
std::uint64_t part_of(double fraction, std::uint64_t total, std::uint64_t free) {
  return std::min(static_cast<std::uint64_t>(fraction * static_cast<double>(total)), free);
}

}  // namespace

int TrainJob::ranks_on_host() const { return std::clamp(model_.shards_on_host, 1, num_ranks_); }

std::uint64_t TrainJob::micro_batches_at_most(const PlanNumbers& plan, std::uint64_t longest) const {
  EpochBounds epoch;
  epoch.longest = longest;
  if (plan.num_samples > 0) epoch.sequences = plan.num_samples;
  if (config_.of_prompts()) {
    epoch.texts = config_.grpo.num_generations;
  } else if (plan.num_tokens > 0) {  // GRPO: the texts, and so their tokens, are not known yet
    epoch.tokens = plan.num_tokens;
  }
  return most_micro_batches(config_.batches, epoch);
}

// Memory of the host for this rank; the ranks of a host share it evenly. Weights that earlier tasks left in the cache
// count as free.
std::uint64_t TrainJob::allowed_host_bytes() const {
  if (model_.planned_gpu) return ~std::uint64_t{0};  // the memory of planned hosts is unknown
  const HostMemory memory = magister::host_memory();
  const auto ranks = static_cast<std::uint64_t>(std::max(1, model_.shards_on_host));
  const std::uint64_t kept = model_.kept.store == nullptr ? 0 : ranks * model_.kept.store->host_bytes();
  // free_bytes is 0 if the system does not report it.
  const std::uint64_t free = memory.free_bytes > 0 ? memory.free_bytes + kept : memory.total_bytes;
  return memory.total_bytes == 0 ? ~std::uint64_t{0}
                                 : part_of(config_.memory_fraction, memory.total_bytes, free) / ranks;
}

bool TrainJob::has_gpu_memory() const { return model_.gpu && (!model_.gpu->on_host() || gpus_on_host()); }

// Memory of the GPU for this rank. Only the share kUsableGpuShare of the free memory is usable.
std::uint64_t TrainJob::allowed_gpu_bytes() const {
  if (!has_gpu_memory()) return ~std::uint64_t{0};
  if (const std::uint64_t planned = least_planned_bytes(); planned > 0)
    return part_of(config_.memory_fraction, planned,
                   static_cast<std::uint64_t>(kUsableGpuShare * static_cast<double>(planned)));
  if (model_.gpu->on_host()) {
    const std::vector<GpuDevice> all = discover_gpus();
    const GpuDevice& played = all[static_cast<std::size_t>(context_.world.rank()) % all.size()];
    return part_of(config_.memory_fraction, played.total_bytes, played.free_bytes);
  }
  const GpuMemory memory = gpu_memory(model_.gpu->device);
  const std::uint64_t kept = model_.kept.store == nullptr ? 0 : model_.kept.store->gpu_bytes(model_.gpu->device);
  return part_of(config_.memory_fraction, memory.total_bytes,
                 static_cast<std::uint64_t>(kUsableGpuShare * static_cast<double>(memory.free_bytes + kept)));
}

// The fastest shape; nothing is given up.
TrainingShape TrainJob::whole_shape(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  TrainingShape shape;
  const std::uint64_t longest =
      std::max<std::uint64_t>(plan.longest_sample + (config_.of_prompts() ? config_.grpo.max_new_tokens : 0), 2);
  const std::uint64_t sequence = batches.packing ? batches.max_length : longest * (config_.of_pairs() ? 2 : 1);
  shape.longest = static_cast<std::int64_t>(longest);
  shape.tokens = static_cast<std::int64_t>(batches.micro_batch > 0 ? batches.micro_batch * sequence
                                                                   : std::max<std::uint64_t>(sequence, 1024));
  const auto ranks = static_cast<std::uint64_t>(num_ranks_);
  shape.own_micro_batches = (micro_batches_at_most(plan, sequence) + ranks - 1) / ranks;
  shape.ranks = num_ranks_;
  shape.writes_states = context_.world.rank() == 0;
  shape.adapter = lora_ ? lora_->num_parameters() : 0;
  shape.num_threads = model_.gpu ? 1 : std::max(1, usable_cores() / std::max(1, model_.shards_on_host));
  shape.sharing = config_.trainer.divides_optimizer ? num_ranks_ : 1;
  shape.with_weights = lora_ || config_.trainer.divides_optimizer ? ranks_on_host() : 1;
  shape.bf16 = config_.trainer.bf16;
  shape.recompute = config_.recompute.value_or(false);
  return shape;
}

bool TrainJob::gpus_may_exchange() const {
  return model_.gpu && num_ranks_ > 1 && all_may_exchange_ && devices_may_exchange();
}

// With the optimizer on the GPU, a step copies nothing between host and GPU, if the ranks' GPUs exchange gradients
// themselves. Recomputing layers costs less than copying weights and gradients.
std::optional<TrainingShape> TrainJob::shape_on_gpu(const PlanNumbers& plan) const {
  for (const bool exchange : {true, false}) {
    if (exchange && !gpus_may_exchange()) continue;
    TrainingShape shape = whole_shape(plan);
    shape.sums_on_gpu = shape.optimizer_on_gpu = true;
    shape.gpus_exchange = exchange;
    shape.with_weights = ranks_on_host();
    if (fits(shape, plan)) return shape;
    shape.recompute = shape.recompute || !config_.recompute;
    if (fits(shape, plan)) return shape;
  }
  return std::nullopt;
}

// GPUs exchange messages on all ranks or on none, and ranks may have unequal memory. The shape that was asked about is
// the one that is returned: free memory may be another at the next call. States are copied where every rank has room
// for what it copies, because the copies change what the ranks send.
TrainingShape TrainJob::agreed_shape(const PlanNumbers& plan) {
  const Communicator& world = context_.world;
  const auto one_if = [](bool value) { return std::uint64_t{value ? 1u : 0u}; };
  TrainingShape shape = shape_of(plan);
  const bool wanted = shape.gpus_exchange;
  all_may_exchange_ = world.min(one_if(wanted)) != 0;
  if (!all_may_exchange_ && world.max(one_if(wanted)) != 0) {
    for (const std::string& fault : world.all_gather(memory_fault(plan)))
      MAGISTER_CHECK(fault.empty(), ExitCode::kConfig, "{}", fault);
    shape = shape_of(plan);
  }
  shape.copies_states = world.min(one_if(shape.copies_states)) != 0;
  return shape;
}

bool TrainJob::writes_beside_steps(const TrainingShape& shape, const PlanNumbers& plan) const {
  return config_.save_every < steps(plan) && state_bytes(checkpoint_.config(), shape) >= kLeastCopied;
}

TrainingShape TrainJob::shape_of(const PlanNumbers& plan) const {
  TrainingShape shape = shape_of_steps(plan);
  shape.copies_states = writes_beside_steps(shape, plan);
  shape.copies_states = shape.copies_states && fits(shape, plan);
  return shape;
}

TrainingShape TrainJob::shape_of_steps(const PlanNumbers& plan) const {
  const bool gpu_is_full = fail_point("train.memory.short");
  if (model_.gpu && !gpu_is_full) {
    if (const auto shape = shape_on_gpu(plan)) return *shape;
  }
  TrainingShape shape = whole_shape(plan);
  for (;;) {
    shape.sums_on_gpu = model_.gpu.has_value();
    if (fits(shape, plan)) return shape;
    shape.sums_on_gpu = false;
    if (model_.gpu && fits(shape, plan)) return shape;
    if (!shape.recompute && !config_.recompute) {
      shape.recompute = true;
    } else if (shape.num_threads > 1) {
      shape.num_threads /= 2;
    } else {
      return shape;
    }
  }
}

bool TrainJob::fits(const TrainingShape& shape, const PlanNumbers& plan) const {
  const std::uint64_t on_device = sum_of(device_bytes(shape, plan));
  if (!model_.gpu) return on_device <= allowed_host_bytes();
  return on_device <= allowed_gpu_bytes() && sum_of(host_bytes(shape)) <= allowed_host_bytes();
}

MemoryParts TrainJob::device_bytes(const TrainingShape& shape, const PlanNumbers& plan) const {
  if (model_.gpu) return gpu_bytes(shape, plan);
  auto parts = training_bytes(checkpoint_.config(), shape);
  add_host_parts(shape, parts);
  if (!config_.of_prompts()) return parts;
  const GrpoModel rollouts = grpo_model(model_, config_, plan.longest_sample, 0);
  parts.emplace_back("generator, freed before the gradients",
                     weight_bytes() + static_cast<std::uint64_t>(rollouts.num_pages) * model_.page_bytes(1) +
                         static_cast<std::uint64_t>(rollouts.limits.sequences) *
                             delta_state_bytes(checkpoint_.config(), partition_for(checkpoint_.config(), 0, 1)));
  return parts;
}

// Texts are generated, and the reference is evaluated, before gradients exist. So they add to the demand only what
// exceeds the gradients.
MemoryParts TrainJob::gpu_bytes(const TrainingShape& shape, const PlanNumbers& plan) const {
  auto parts = gpu_training_bytes(checkpoint_.config(), shape);
  if (!config_.of_prompts()) return parts;
  const auto bytes_of = [&parts](const char* name) {
    std::uint64_t bytes = 0;
    for (const auto& part : parts) bytes += part.first == name ? part.second : 0;
    return bytes;
  };
  const std::uint64_t activations = bytes_of("activations"), of_step = bytes_of("gradients") + activations;
  const GrpoModel rollouts =
      grpo_model(model_, config_, plan.longest_sample, bytes_of("weights") + bytes_of("optimizer"));
  std::uint64_t before =
      sum_of(rollouts.model.device_memory(1, rollouts.pass, static_cast<std::uint64_t>(rollouts.num_pages)));
  if (config_.has_reference_weights()) before = std::max(before, weight_bytes() + activations);
  if (before > of_step)
    parts.emplace_back("generator or reference, beyond gradients and activations", before - of_step);
  return parts;
}

MemoryParts TrainJob::host_bytes(const TrainingShape& shape) const {
  auto parts = host_training_bytes(checkpoint_.config(), shape);
  add_host_parts(shape, parts);
  return parts;
}

MemoryParts TrainJob::memory(const PlanNumbers& plan) const { return device_bytes(shape_of(plan), plan); }

MemoryParts TrainJob::host_memory(const PlanNumbers& plan) const {
  return model_.gpu ? host_bytes(shape_of(plan)) : MemoryParts();
}

void TrainJob::add_host_parts(const TrainingShape& shape, MemoryParts& parts) const {
  if (num_ranks_ > 1 && !shape.gpus_exchange) {
    const std::int64_t learnt = lora_ ? lora_->num_parameters() : layout_.num_parameters();
    parts.emplace_back("gradients of other ranks", GradientTree::arriving_bytes(learnt));
  }
  if (held_out_records_) parts.emplace_back("held-out records", held_out_records_->num_bytes());
  open_->add_host_memory(shape, weight_bytes() / static_cast<std::uint64_t>(ranks_on_host()), parts);
}

Notes TrainJob::memory_notes(const TrainingShape& chosen, const PlanNumbers& plan) const {
  TrainingShape whole = whole_shape(plan);
  const std::uint64_t allowed = has_gpu_memory() ? allowed_gpu_bytes() : allowed_host_bytes();
  std::string choice = fmt::format("{}{}", chosen.recompute ? "on" : "off", config_.recompute ? "" : ", chosen");
  whole.sums_on_gpu = chosen.sums_on_gpu;
  whole.optimizer_on_gpu = chosen.optimizer_on_gpu;
  whole.gpus_exchange = chosen.gpus_exchange;
  whole.copies_states = chosen.copies_states;
  if (chosen.recompute != whole.recompute)
    choice += fmt::format(" (without it {} would be needed)", format_bytes(sum_of(device_bytes(whole, plan))));
  Notes notes = {{"memory allowed",
                  fmt::format("{} a rank, train.memory_fraction {}", format_bytes(allowed), config_.memory_fraction)},
                 {"checkpointing", choice}};
  if (num_ranks_ > 1 && chosen.optimizer_on_gpu)
    notes.emplace_back("between ranks", chosen.gpus_exchange ? "gradients and weights go from GPU to GPU"
                                                             : "gradients and weights pass through the hosts");
  if (model_.gpu)
    notes.emplace_back("optimizer", chosen.optimizer_on_gpu ? "on the GPU"
                                    : chosen.sums_on_gpu    ? "on the host; gradients are added up on the GPU"
                                                            : "on the host, where gradients are added up");
  if (writes_beside_steps(chosen, plan))
    notes.emplace_back("states", chosen.copies_states
                                     ? "written while the next steps compute"
                                     : fmt::format("steps wait for them: there is no room for a copy of {}",
                                                   format_bytes(state_bytes(checkpoint_.config(), chosen))));
  if (chosen.num_threads < whole.num_threads) {
    notes.emplace_back("at once", fmt::format("{} micro-batches instead of {}", chosen.num_threads, whole.num_threads));
  }
  return notes;
}

std::string TrainJob::memory_fault(const PlanNumbers& plan) const {
  const TrainingShape shape = shape_of(plan);
  if (fits(shape, plan)) return "";
  const MemoryParts on_device = device_bytes(shape, plan), on_host = host_memory(plan);
  const auto [needed, allowed] =
      format_bytes_apart(sum_of(on_device), model_.gpu ? allowed_gpu_bytes() : allowed_host_bytes());
  const auto [of_host, host_allows] = format_bytes_apart(sum_of(on_host), allowed_host_bytes());
  const bool host_counts = model_.gpu && !model_.planned_gpu;
  return fmt::format(
      "{}: a rank on {} needs {} at least: {}{}, and train.memory_fraction {} allows it {}{} (the system would kill "
      "the job); lower train.micro_batch or train.max_length, {}use fewer ranks on a host, or raise "
      "train.memory_fraction",
      config_.name, model_.planned_gpu ? "a planned GPU" : host_name(), needed, describe(on_device),
      model_.gpu ? fmt::format("; of its host {}: {}", of_host, describe(on_host)) : "", config_.memory_fraction,
      allowed, host_counts ? fmt::format(", and of its host {}", host_allows) : "",
      shape.recompute ? "" : "set train.gradient_checkpointing: auto, ");
}

}  // namespace magister
