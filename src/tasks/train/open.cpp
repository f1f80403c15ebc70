// Opens and checks the inputs of a training, and computes its identity; see job.h.
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/sha256.h"
#include "magister/io/results/reader.h"
#include "magister/run/results_on_disk.h"
#include "magister/runtime/length_key.h"
#include "magister/runtime/model_hash.h"
#include "magister/runtime/open_model.h"
#include "magister/runtime/tokenizer_files.h"
#include "magister/train/trunk.h"
#include "tasks/train/job.h"
#include "tasks/train/objective.h"

namespace magister {
namespace fs = std::filesystem;

std::string TrainJob::folder() const { return fs::path(context_.results_path).replace_extension().string(); }

TrainJob::TrainJob(const TrainConfig& config, const TaskInputs& inputs)
    : config_(config),
      context_(inputs.context),
      checkpoint_(inputs.checkpoint),
      model_(inputs.model),
      num_ranks_(inputs.num_ranks),
      layout_(config.of_head() ? with_reward_head(inputs.checkpoint.description(), config.head_labels())
                               : inputs.checkpoint.description()),
      dataset_(inputs.dataset) {
  check_model(inputs.tp_size);
  if (config_.of_head()) check_head();
  if (config_.trainer.lora) open_adapter();
  open_ = config_.objective().open(config_, inputs);
  if (config_.evaluate) open_held_out();
}

void TrainJob::check_model(int tp_size) const {
  const ModelConfig& model = checkpoint_.config();
  MAGISTER_CHECK(tp_size == 1, ExitCode::kConfig,
                 "{}: a group of {} shards (every rank trains with a whole copy of the model); leave "
                 "layout.gpus_per_group and layout.shards_per_rank out",
                 config_.name, tp_size);
  MAGISTER_CHECK(fs::is_directory(checkpoint_.path()) && !checkpoint_.file().dequantizes(), ExitCode::kConfig,
                 "{}: {} is {} (its weights cannot be trained and saved under their names); name a folder of an "
                 "unquantised model in Hugging Face's layout",
                 config_.model.place, printable(checkpoint_.path(), 4096),
                 checkpoint_.file().dequantizes() ? "quantised" : "one file");
  const std::uint64_t positions = positions_of(model).whole;
  MAGISTER_CHECK(positions == 0 || config_.batches.max_length <= positions, ExitCode::kConfig,
                 "{} is {}, but the model was made for {} positions (what it learns beyond them would be lost); choose "
                 "at most {}",
                 config_.length_place, config_.batches.max_length, positions, positions);
  MAGISTER_CHECK(
      fs::weakly_canonical(checkpoint_.path()) != fs::weakly_canonical(folder()), ExitCode::kConfig,
      "{}: model.path is {}, where this training puts its own result (it would begin from what it replaces); "
      "give the experiment or the task another name",
      config_.name, printable(checkpoint_.path(), 4096));
}

void TrainJob::open_adapter() {
  MAGISTER_CHECK(checkpoint_.section().adapter.empty(), ExitCode::kConfig,
                 "{}: train.adapter on a model with the adapter {} (the new one would belong to merged weights that "
                 "are stored nowhere); merge the first with PEFT's merge_and_unload and name that folder as model.path",
                 config_.model.place, printable(checkpoint_.section().adapter));
  lora_.emplace(layout_, *config_.trainer.lora);
  // PEFT accepts this without a warning.
  const std::int64_t rank = config_.trainer.lora->config.rank, side = lora_->smallest_side();
  if (rank > side && context_.world.rank() == 0) {
    log_warning(
        "{} is {}, and the smallest side of the layers with an adapter is {} (a product of two factors has no higher "
        "rank: more costs memory and time and learns nothing more); choose at most {}",
        config_.rank_place, rank, side, side);
  }
}

void TrainJob::check_head() const {
  MAGISTER_CHECK(
      !config_.trainer.lora, ExitCode::kConfig,
      "{}: train.adapter with objective: {} (an adapter's folder cannot hold a head yet); remove train.adapter",
      config_.rank_place, config_.objective().name);
  const ModelConfig& model = layout_.description().config;
  MAGISTER_CHECK(
      static_cast<std::int64_t>(model.labels.size()) == config_.head_labels(), ExitCode::kConfig,
      "{}: {} is a classifier of {} labels (this objective learns a head of {}); start from a model with such a "
      "head or with none",
      config_.model.place, printable(checkpoint_.path(), 4096), model.labels.size(), config_.head_labels());
}

// Faults of records are found here, before a file is made, and by `plan`, too.
void TrainJob::open_held_out() {
  DatasetConfig dataset = config_.evaluate->dataset;
  awaits_held_out_ = !open_->find_held_out(dataset);
  if (awaits_held_out_) return;
  held_out_.emplace(Dataset::open(context_.world, dataset));
  MAGISTER_CHECK(held_out_->records().size() > 0, ExitCode::kData,
                 "{}: train.evaluate.dataset has no records (there is no held-out loss); check the data set, or remove "
                 "train.evaluate",
                 config_.name);
  HeldOutSource source = open_->held_out(*held_out_, dataset);
  source.vocab_size = checkpoint_.config().vocab_size;
  source.pad_token_id = reward_pad_token(checkpoint_, config_);
  held_out_records_.emplace(context_.world, config_, source);
  const IndexRange learnt = dataset_.records(), held = held_out_->records();
  const bool overlap = learnt.begin < held.end && held.begin < learnt.end;
  if (context_.world.rank() != 0 || held_out_->sha256() != dataset_.sha256() || !overlap) return;
  log_warning(
      "{}: train.evaluate.dataset is what is learnt from (its loss says nothing about other records); name "
      "records that are held out",
      config_.name);
}

// For objectives that learn from a results file, that file is the data set, and its sha256 is in the identity of every
// task.
Attributes TrainJob::identity() {
  Attributes attributes = open_->identity();
  if (held_out_) {
    attributes.emplace_back("evaluate_dataset_sha256", held_out_->sha256());
    attributes.emplace_back("evaluate_dataset_format", held_out_->formats());
  }
  const auto copied = [this] {
    return files_next_to_weights(checkpoint_.tokenizer_path(), lora_ ? "" : checkpoint_.path());
  };
  if (model_.gpu) attributes.emplace_back("gpu_passes", std::string(kGpuPasses));
  attributes.emplace_back("copied_files_sha256", small_files_sha256(context_.world, copied, context_.stop_poll()));
  leave_if_stopped(context_.world, context_.stop);
  own_identity_.clear();
  for (const auto& [name, value] : attributes) own_identity_.push_back(name);
  return attributes;
}

// A state belongs to this run if these agree: the identity of the working file, which has the plan, and all that
// identity() adds.
StateIdentity TrainJob::state_identity(const AttributeText& text) const {
  std::string all;
  for (const char* const name : {"config_sha256", "model_sha256", "tokenizer_sha256", "chat_template_sha256",
                                 "end_tokens", "dataset_sha256", "dataset_format", "plan_sha256"})
    all += text(name) + "\n";
  if (const std::string rules = checkpoint_.rules_sha256(); !rules.empty()) all += rules + "\n";
  // Two slices whose texts have the same lengths have the same plan.
  const IndexRange records = dataset_.records();
  all += fmt::format("records {} to {} of {}\n", records.begin, records.end, dataset_.num_source_records());
  // Results on CPUs and GPUs agree within rounding, not bit for bit.
  if (model_.gpu) all += fmt::format("gpu {}\n", kGpuPasses);
  for (const std::string& name : own_identity_) all += text(name.c_str()) + "\n";
  return {sha256_hex(all), text("experiment")};
}

StateIdentity TrainJob::state_identity() const {
  const std::string running = folder() + ".running.h5.partial";
  return state_identity([&](const char* name) { return ResultsFile::read_text(running, name); });
}

void TrainJob::check_left_over(const Attributes& attributes) const {
  const auto text = [&](const char* name) {
    const AttributeValue* const value = find_attribute(attributes, name);
    MAGISTER_ASSERT(value != nullptr);  // identity() has added all of them
    return std::get<std::string>(*value);
  };
  check_training_states(context_.world, states(), state_identity(text));
}

void TrainJob::check_samples(const SamplePlan& plan) const {
  open_->check_learns(plan.num_items, plan.num_samples / config_.samples_an_item(), plan.longest_sample);
  say_student_ends(checkpoint_, config_, open_->ends());
}

SampleRules TrainJob::rules() {
  SampleRules rules;
  rules.max_length = config_.batches.max_length;
  rules.overflow = Overflow::kTruncate;
  rules.unit_tokens = 1 << 20;
  rules.vocab_size = checkpoint_.config().vocab_size;
  rules.length_key = "train.max_length";
  rules.check = [this](const SamplePlan& plan) { check_samples(plan); };
  rules.marks_assistant = config_.objective().marks(config_) != nullptr;
  rules.item_samples = config_.samples_an_item();
  rules.takes_part = [this](std::span<const TokenId> ids, std::span<const std::uint8_t> assistant) {
    return learnt_tokens(config_, ids.size(), assistant) > 0;
  };
  open_->add_rules(rules);
  return rules;
}

}  // namespace magister
