#include "magister/tasks/generate/guide.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/kv_pages.h"
#include "magister/model/partition.h"
#include "magister/runtime/length_key.h"

namespace magister {
namespace {

constexpr const char* kForms[] = {"logit", "bernoulli", "expectation", "histogram"};

GuideForm form_of(const std::string& name) {
  return name == "bernoulli"     ? GuideForm::kBernoulli
         : name == "expectation" ? GuideForm::kExpectation
         : name == "histogram"   ? GuideForm::kHistogram
                                 : GuideForm::kLogit;
}

}  // namespace

std::optional<GuideConfig> read_guide(ConfigNode& node, const ExperimentConfig& experiment) {
  std::optional<ConfigNode> section = node.optional_section("guide");
  if (!section) return std::nullopt;
  GuideConfig config;
  ConfigNode model = section->section("model");
  config.model = read_reward_model(model, experiment);
  config.model.dtype = model.choice("dtype", {"f32", "bf16"}, "f32");
  config.params.multiplier = section->number("multiplier", 4.0, 0.0, 1e6);
  config.params.candidates = section->integer("candidates", 20, 1, 1 << 24);
  config.params.form = form_of(section->choice("form", {std::begin(kForms), std::end(kForms)}, kForms[0]));
  config.model_place = section->place("model");
  config.form_place = section->place("form");
  config.candidates_place = section->place("candidates");
  section->also_called("multiplier", {"eta", "guidance_scale", "beta"});
  section->also_called("form", {"inference_mode"});
  section->also_called("candidates", {"top_k", "topk"});
  section->also_called("model", {"value_model", "value", "path"});
  return config;
}

namespace {

std::uint64_t pages_of(std::uint64_t tokens) { return (tokens + KvPages::kSlots - 1) / KvPages::kSlots + 1; }

PassShape value_pass(const GuideParams& params, const GuidedTexts& texts) {
  return {.tokens = std::max(texts.token_budget, static_cast<std::uint64_t>(params.candidates)),
          .sequence_tokens = texts.longest};
}

// Pages for one text and its candidates.
std::uint64_t least_value_pages(const GuideParams& params, std::uint64_t longest) {
  return pages_of(longest) + 1 + static_cast<std::uint64_t>(params.candidates);
}

}  // namespace

std::vector<SecondModel> value_models(const std::optional<GuideConfig>& guide, const GuidedTexts& texts) {
  if (!guide || guide->params.multiplier == 0) return {};
  return {{.name = "value model",
           .section = guide->model,
           .pass = value_pass(guide->params, texts),
           .pages = least_value_pages(guide->params, texts.longest)}};
}

ValueModel::ValueModel(const GuideConfig& config, const TaskInputs& inputs, const GuidedTexts& texts)
    : config_(config),
      texts_(texts),
      tp_size_(inputs.tp_size),
      model_(config.model, inputs.context, {"guide_", "value model"}) {
  model_.checkpoint().fix_rope(texts.longest);
  check(inputs);
  model_.open(inputs.context.world, inputs.model.gpu, inputs.model.gpus);
  model_.model().shards_on_host = inputs.model.shards_on_host;
  model_.model().kept.store = inputs.model.kept.store;
  divide_cache(inputs.model);
}

// Divides the GPU memory that weights and passes of both models leave free between the two caches, in proportion to the
// bytes of one text in each. On CPUs each model has its own part of the host's memory.
void ValueModel::divide_cache(const OpenModel& reference) {
  OpenModel& value = model_.model();
  if (!value.gpu || params().multiplier == 0) return;
  const std::uint64_t own = sum_of(value.device_memory(tp_size_, pass(), 1)), pages = pages_of(texts_.longest);
  OpenModel sized = reference;
  sized.reserved_bytes = own + texts_.reserved_bytes;
  const auto left = static_cast<double>(sized.cache_budget_bytes(tp_size_, texts_.pass));
  const auto value_text = static_cast<double>((pages + static_cast<std::uint64_t>(config_.params.candidates)) *
                                              value.page_bytes(tp_size_)),
             reference_text = static_cast<double>(pages * reference.page_bytes(tp_size_));
  const auto share = static_cast<std::uint64_t>(left * value_text / (value_text + reference_text));
  gpu_bytes_ = own + share;
  value.reserved_bytes = sum_of(reference.device_memory(tp_size_, texts_.pass, 1)) + static_cast<std::uint64_t>(left) -
                         share + texts_.reserved_bytes;
}

void ValueModel::check(const TaskInputs& inputs) {
  const ModelConfig &value = model_.config(), &reference = inputs.checkpoint.config();
  const std::string path = model_.path();
  MAGISTER_CHECK(value.is_classifier() && !value.encoder, ExitCode::kConfig,
                 "{}: {} is {} (a value model is a decoder with a head of labels, as `objective: reward` writes it); "
                 "name such a folder",
                 config_.model_place, path, value.encoder ? "an encoder" : "a language model without such a head");
  MAGISTER_CHECK(
      !value.delta, ExitCode::kConfig,
      "{}: {} is of the family {} (it has linear attention, whose states cannot be copied for each candidate "
      "yet); choose a value model of another family",
      config_.model_place, path, value.family);
  const bool histogram = config_.params.form == GuideForm::kHistogram;
  MAGISTER_CHECK(histogram == (value.labels.size() > 1), ExitCode::kConfig,
                 "{} is {}, and {} gives {} number{} a text ({}); choose another form, or another value model",
                 config_.form_place, kForms[static_cast<std::size_t>(config_.params.form)], path, value.labels.size(),
                 value.labels.size() == 1 ? "" : "s",
                 histogram ? "a histogram has two or more" : "this form reads one");
  MAGISTER_CHECK(same_tokenizer(model_.checkpoint().tokenizer_identity(), inputs.checkpoint.tokenizer_identity()),
                 ExitCode::kConfig,
                 "{}: {} has another tokenizer than {} (vocabulary, merges, normalizer, pre-tokenizer or added tokens "
                 "differ: its tokens mean other texts); name a value model with the reference's tokenizer",
                 config_.model_place, path, printable(inputs.checkpoint.path(), 4096));
  // Models of one family may pad their vocabularies differently. No text has the ids beyond the smaller vocabulary.
  const std::int64_t tokens = model_.checkpoint().tokenizer().vocab_size();
  MAGISTER_CHECK(
      value.vocab_size >= std::min(tokens, reference.vocab_size), ExitCode::kConfig,
      "{}: {} has a vocabulary of {}, and its tokenizer {} tokens (some of the reference's texts could not be "
      "read); name a value model with a row for each",
      config_.model_place, path, value.vocab_size, tokens);
  MAGISTER_CHECK(config_.params.candidates <= std::min(value.vocab_size, reference.vocab_size), ExitCode::kConfig,
                 "{} is {} (the vocabulary has {} entries); lower it", config_.candidates_place,
                 config_.params.candidates, std::min(value.vocab_size, reference.vocab_size));
  const std::uint64_t positions = positions_of(value).cached;
  MAGISTER_CHECK(positions == 0 || texts_.longest <= positions, ExitCode::kConfig,
                 "{}: {} holds {} positions in its cache, and max_prompt_length and max_new_tokens are {} together "
                 "(its values for longer texts would mean nothing); lower one of them",
                 config_.model_place, path, positions, texts_.longest);
  for (int shard = 0; shard < tp_size_; ++shard)
    partition_for(value, shard, tp_size_);  // throws if the model cannot be divided
}

Attributes ValueModel::identity(const Communicator& world, const StopPoll& poll) const {
  Attributes attributes = model_.identity(world, poll);
  if (const std::string products = model_.model().bf16_products(); !products.empty())
    attributes.emplace_back("guide_bf16_products", products);
  return attributes;
}

void ValueModel::keep_weights(WeightStore& store, const Attributes& identity, std::vector<std::string>& names) {
  if (params().multiplier != 0) model_.keep_weights(store, identity, names);
}

PassShape ValueModel::pass() const { return value_pass(params(), texts_); }

std::int64_t ValueModel::num_pages(std::uint64_t longest) const {
  const auto candidates = static_cast<std::uint64_t>(config_.params.candidates);
  const std::uint64_t rows = std::min(texts_.max_sequences * candidates, pass().tokens);
  const OpenModel& value = model_.model();
  if (!value.gpu)
    return pages_of_texts(value, tp_size_, pass(), longest, texts_.max_sequences) + static_cast<std::int64_t>(rows);
  const std::uint64_t affordable = value.cache_budget_bytes(tp_size_, pass()) / value.page_bytes(tp_size_);
  const std::uint64_t wanted = pages_of(longest) * texts_.max_sequences + rows;
  return static_cast<std::int64_t>(std::max(least_value_pages(params(), longest), std::min(wanted, affordable)));
}

MemoryParts ValueModel::memory(std::uint64_t longest) const {
  return model_.memory(tp_size_, pass(), static_cast<std::uint64_t>(num_pages(longest)));
}

std::string ValueModel::describe() const {
  return fmt::format("{}, {:.1f} M parameters, {}: {} candidates, {}, multiplier {}", model_.config().family,
                     static_cast<double>(model_.config().num_parameters()) * 1e-6, dtype_name(model_.model().dtype),
                     config_.params.candidates, kForms[static_cast<std::size_t>(config_.params.form)],
                     config_.params.multiplier);
}

ShardGuide ValueModel::shard_guide(std::uint64_t longest) const {
  return {.params = params(),
          .pages = num_pages(longest),
          .load = [this](ProcessGroup& group, ThreadPool& pool, const LoadHook& hook) {
            return model_.load(group, pool, hook);
          }};
}

}  // namespace magister
