// The list of families, and the fields that all of them spell in the same way. A family is found by config.json's
// model_type or by GGUF's general.architecture; an unknown one is refused by name.
#include <algorithm>
#include <numeric>

#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/json_value.h"

namespace magister {

extern const Family kLlamaFamily, kMistralFamily, kQwen2Family, kQwen3Family, kGemmaFamily, kGemma2Family,
    kGemma3Family, kPhi3Family, kOlmo2Family, kOlmo3Family, kSmolLm3Family, kGraniteFamily, kGlmFamily, kGlm4Family,
    kCohereFamily, kCohere2Family, kMixtralFamily, kQwen3MoeFamily, kOlmoeFamily, kGptNeoxFamily, kGpt2Family,
    kGptOssFamily, kBertFamily, kDistilBertFamily, kDebertaV2Family, kRobertaFamily, kXlmRobertaFamily,
    kMinistralFamily, kMinistral3Family, kCwmFamily, kSeedOssFamily, kIQuestCoderFamily, kInternLm3Family,
    kErnie45Family, kHeliumFamily, kExaone4Family, kHunYuanFamily, kVaultGemmaFamily, kHyperClovaXFamily,
    kGraniteMoeFamily, kMellumFamily, kFlexOlmoFamily, kNemotronFamily, kArceeFamily, kJais2Family, kStableLmFamily,
    kStarcoder2Family, kFalconFamily, kGptBigCodeFamily, kGptNeoFamily, kOptFamily, kQwen25VlFamily, kQwen3VlFamily,
    kGlm4vFamily, kQwen2MoeFamily, kGlm4MoeFamily, kDots1Family, kErnie45MoeFamily, kHunYuanMoeFamily, kMiniMaxM2Family,
    kOlmoFamily, kApertusFamily, kPhiFamily, kGptJFamily, kCodeGenFamily, kLlama4Family, kPhiMoeFamily,
    kCohere2MoeFamily, kBloomFamily, kMptFamily, kPersimmonFamily, kDeepseekV2Family, kDeepseekV3Family,
    kDeepseekV32Family, kGlmMoeDsaFamily, kKimiK2Family, kGlm4MoeLiteFamily, kYoutuFamily, kGemma4Family,
    kGemma3nFamily, kGemma4UnifiedFamily, kMiMoV2Family, kExaoneMoeFamily, kGraniteMoeSharedFamily, kGraniteSwaFamily,
    kGraniteMoeSwaFamily, kAxK1Family, kSolarOpenFamily, kHyV3Family, kKolibri1Family, kFlintFamily, kAfmoeFamily,
    kLagunaFamily, kMiniCpm3Family, kNanoChatFamily, kAriaFamily, kBioGptFamily, kExaoneFamily, kSarvamMoeFamily,
    kSarvamMlaFamily, kApertus1p5Family, kQwen2VlFamily, kGlm4vMoeFamily, kQwen3NextFamily, kQwen35Family,
    kQwen35MoeFamily;

namespace {

std::vector<const Family*>& all_families() {
  static std::vector<const Family*> all = {
      &kLlamaFamily,       &kMistralFamily,       &kQwen2Family,       &kQwen3Family,
      &kGemmaFamily,       &kGemma2Family,        &kGemma3Family,      &kPhi3Family,
      &kOlmo2Family,       &kOlmo3Family,         &kSmolLm3Family,     &kGraniteFamily,
      &kGlmFamily,         &kGlm4Family,          &kCohereFamily,      &kCohere2Family,
      &kMixtralFamily,     &kQwen3MoeFamily,      &kOlmoeFamily,       &kGptOssFamily,
      &kGptNeoxFamily,     &kGpt2Family,          &kBertFamily,        &kRobertaFamily,
      &kXlmRobertaFamily,  &kDistilBertFamily,    &kDebertaV2Family,   &kMinistralFamily,
      &kMinistral3Family,  &kCwmFamily,           &kSeedOssFamily,     &kIQuestCoderFamily,
      &kInternLm3Family,   &kErnie45Family,       &kHeliumFamily,      &kExaone4Family,
      &kHunYuanFamily,     &kVaultGemmaFamily,    &kHyperClovaXFamily, &kGraniteMoeFamily,
      &kMellumFamily,      &kFlexOlmoFamily,      &kNemotronFamily,    &kArceeFamily,
      &kJais2Family,       &kStableLmFamily,      &kStarcoder2Family,  &kFalconFamily,
      &kGptBigCodeFamily,  &kGptNeoFamily,        &kOptFamily,         &kQwen25VlFamily,
      &kQwen3VlFamily,     &kGlm4vFamily,         &kQwen2MoeFamily,    &kGlm4MoeFamily,
      &kDots1Family,       &kErnie45MoeFamily,    &kHunYuanMoeFamily,  &kMiniMaxM2Family,
      &kOlmoFamily,        &kApertusFamily,       &kPhiFamily,         &kGptJFamily,
      &kCodeGenFamily,     &kLlama4Family,        &kPhiMoeFamily,      &kCohere2MoeFamily,
      &kBloomFamily,       &kMptFamily,           &kPersimmonFamily,   &kDeepseekV2Family,
      &kDeepseekV3Family,  &kDeepseekV32Family,   &kGlmMoeDsaFamily,   &kKimiK2Family,
      &kGlm4MoeLiteFamily, &kYoutuFamily,         &kGemma4Family,      &kGemma4UnifiedFamily,
      &kGemma3nFamily,     &kMiMoV2Family,        &kExaoneMoeFamily,   &kGraniteMoeSharedFamily,
      &kGraniteSwaFamily,  &kGraniteMoeSwaFamily, &kAxK1Family,        &kSolarOpenFamily,
      &kHyV3Family,        &kKolibri1Family,      &kFlintFamily,       &kAfmoeFamily,
      &kLagunaFamily,      &kMiniCpm3Family,      &kNanoChatFamily,    &kAriaFamily,
      &kBioGptFamily,      &kExaoneFamily,        &kSarvamMoeFamily,   &kSarvamMlaFamily,
      &kApertus1p5Family,  &kQwen2VlFamily,       &kGlm4vMoeFamily,    &kQwen3NextFamily,
      &kQwen35Family,      &kQwen35MoeFamily,
  };
  return all;
}

}  // namespace

const std::vector<const Family*>& families() { return all_families(); }
void add_family(const Family& family) { all_families().push_back(&family); }

namespace {

std::string known_names(const char* Family::* field) {
  std::string names;
  for (const Family* family : families()) {
    if (*(family->*field) != '\0') names += (names.empty() ? "" : ", ") + std::string(family->*field);
  }
  return names;
}

// transformers' class of the same layers with a classification head; "": there is none.
std::string classifier_of(const Family& family) {
  if (family.classifier != nullptr) return family.classifier;
  std::string name = family.architecture;
  for (const std::string_view ending : {"ForCausalLM", "LMHeadModel"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size()) + "ForSequenceClassification";
  }
  return name;
}

}  // namespace

std::string classifier_architecture(const ModelConfig& config) {
  const auto& all = families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Family* f) { return config.family == f->name; });
  return found == all.end() ? "" : classifier_of(**found);
}

ModelDescription with_reward_head(const ModelDescription& description, std::int64_t num_labels) {
  if (description.config.is_classifier()) return description;
  MAGISTER_CHECK(description.outer_type.empty(), ExitCode::kConfig,
                 "a reward model from the text decoder of a {} (its class with a head of labels reads images, too); "
                 "start from a model of texts alone",
                 description.outer_type);
  MAGISTER_CHECK(!classifier_architecture(description.config).empty(), ExitCode::kConfig,
                 "models of the family {} have no class with a head of labels in transformers (nothing could load the "
                 "reward model); start from a model of another family",
                 description.config.family);
  ModelDescription rewards = description;
  rewards.config.labels.clear();
  for (std::int64_t i = 0; i < num_labels; ++i) rewards.config.labels.push_back(fmt::format("LABEL_{}", i));
  rewards.config.final_logit_softcapping = 0;
  rewards.names.lm_head = "score.weight";
  return rewards;
}

const Family& family_of(const HfConfig& source) {
  const std::string type = source.text_or("model_type", "");
  const auto& all = families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Family* f) { return type == f->model_type; });
  MAGISTER_CHECK(found != all.end(), ExitCode::kData,
                 "{}: model_type is \"{}\" (this architecture is not supported; known: {}); use another model",
                 printable(source.path()), printable(type), known_names(&Family::model_type));
  const std::string classifier = classifier_of(**found);
  for (const std::string& name : source.texts("architectures")) {
    MAGISTER_CHECK(name == (*found)->architecture || (!name.empty() && name == (*found)->published_architecture) ||
                       (!name.empty() && name == classifier),
                   ExitCode::kData,
                   "{}: architectures names \"{}\" (of this family {}{}{} run here); use another model",
                   printable(source.path()), printable(name), (*found)->architecture, classifier.empty() ? "" : " and ",
                   classifier);
  }
  return **found;
}

namespace {

constexpr std::int64_t kMaxHidden = 1 << 20, kMaxMlp = 1 << 22, kMaxLayers = 1 << 12, kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxHeadDim = 1 << 12, kMaxVocab = 1 << 24, kMaxPositions = INT32_MAX;

std::int64_t stated_head_dim(const HfConfig& source, const ModelConfig& config) {
  if (source.has("head_dim")) return source.integer("head_dim", 2, kMaxHeadDim);
  // 0 if it does not divide: the family may have a default, else check_config() refuses it.
  return config.hidden_size % config.num_attention_heads == 0 ? config.hidden_size / config.num_attention_heads : 0;
}

// Columns of the MLPs. A list with a number for each layer becomes their greatest common divisor and its multiples.
void read_mlp_columns(const HfConfig& source, const Family& family, ModelConfig& config) {
  constexpr const char* kKey = "intermediate_size";
  if (!family.mlp_by_layer || !source.is_list(kKey)) {
    config.intermediate_size = family.default_mlp_widths > 0
                                   ? source.integer_or(kKey, family.default_mlp_widths * config.hidden_size, 1, kMaxMlp)
                                   : source.integer(kKey, 1, kMaxMlp);
    return;
  }
  const std::vector<std::int64_t> columns = source.integers(kKey, 1, kMaxMlp);
  MAGISTER_CHECK(static_cast<std::int64_t>(columns.size()) == config.num_hidden_layers, ExitCode::kData,
                 "{}: {} has {} numbers (the model has {} layers); fetch the config again", printable(source.path()),
                 kKey, columns.size(), config.num_hidden_layers);
  for (const std::int64_t one : columns) config.intermediate_size = std::gcd(config.intermediate_size, one);
  for (const std::int64_t one : columns) config.mlp_widths.push_back(one / config.intermediate_size);
  if (std::ranges::all_of(config.mlp_widths, [](std::int64_t widths) { return widths == 1; }))
    config.mlp_widths.clear();
}

}  // namespace

const Family& family_of(const GgufConfig& source) {
  const auto& all = families();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Family* f) { return source.architecture() == f->gguf_architecture; });
  MAGISTER_CHECK(
      found != all.end() && !source.architecture().empty(), ExitCode::kData,
      "{}: general.architecture is \"{}\" (this architecture is not supported; known: {}); use another model",
      printable(source.path()), printable(source.architecture()), known_names(&Family::gguf_architecture));
  return **found;
}

ModelConfig read_config(HfConfig& source, const Family& family) {
  source.call(family.hf_keys);
  source.also_call(family.hf_other_keys);
  source.lift(family.hf_object);
  source.fill(family.hf_defaults);
  source.refuse_unsupported(family.computes);
  ModelConfig config;
  config.family = family.name;
  config.vocab_size = source.integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = source.integer("hidden_size", 1, kMaxHidden);
  config.num_hidden_layers = source.integer("num_hidden_layers", 1, kMaxLayers);
  read_mlp_columns(source, family, config);
  config.num_attention_heads = source.integer("num_attention_heads", 1, kMaxHeads);
  config.num_key_value_heads = source.integer_or("num_key_value_heads", config.num_attention_heads, 1, kMaxHeads);
  config.head_dim = stated_head_dim(source, config);
  config.max_position_embeddings = source.integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_norm_eps = source.number_or("rms_norm_eps", 1e-6, 1e-12, 1.0);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", false);
  config.initializer_range = source.number_or("initializer_range", 0.02, 0, 1e3);
  config.bos_token_id = source.token_or("bos_token_id", -1);
  config.eos_token_id = source.token_or("eos_token_id", -1);
  config.rope = source.rope(config.max_position_embeddings, family.default_rope_theta);
  config.rotary_dim = source.rotary_dim(config.head_dim);
  config.activation = source.activation();
  family.read_hf(source, config);
  if (!config.encoder) source.require_causal();
  config.pad_token_id = source.token_or("pad_token_id", -1);
  const std::vector<std::string> architectures = source.texts("architectures");
  if (config.encoder || (!architectures.empty() && architectures.front() != family.architecture &&
                         architectures.front() != family.published_architecture)) {
    config.labels = source.labels();
    config.final_logit_softcapping = 0;  // this cap is for logits over a vocabulary only
  }
  check_config(config, source.path());
  return config;
}

ModelConfig read_config(GgufConfig& source, const Family& family) {
  source.refuse_unsupported(family.computes);
  ModelConfig config;
  config.family = family.name;
  config.vocab_size = source.vocab_size();
  config.hidden_size = source.integer("embedding_length", 1, kMaxHidden);
  config.intermediate_size = source.integer("feed_forward_length", 1, kMaxMlp);
  config.num_hidden_layers = source.integer("block_count", 1, kMaxLayers);
  config.num_attention_heads = source.integer("attention.head_count", 1, kMaxHeads);
  config.num_key_value_heads = source.integer_or("attention.head_count_kv", config.num_attention_heads, 1, kMaxHeads);
  const bool divides = config.hidden_size % config.num_attention_heads == 0;
  config.head_dim = divides && !source.has("attention.key_length")
                        ? config.hidden_size / config.num_attention_heads
                        : source.integer("attention.key_length", 2, kMaxHeadDim);
  source.integer_or("attention.value_length", config.head_dim, config.head_dim, config.head_dim);
  config.max_position_embeddings = source.integer("context_length", 1, kMaxPositions);
  // Files of layer norms have another key.
  const bool mean_is_taken = is_named(family.computes, "attention.layer_norm_epsilon");
  config.rms_norm_eps =
      source.number(mean_is_taken ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-12, 1.0);
  config.tie_word_embeddings = !source.has_tensor("output.weight");
  config.qkv_bias = source.has_tensor("blk.0.attn_q.bias");
  config.o_bias = source.has_tensor("blk.0.attn_output.bias");
  config.mlp_bias = source.has_tensor("blk.0.ffn_gate.bias");
  config.bos_token_id = source.token_or("tokenizer.ggml.bos_token_id", -1);
  config.eos_token_id = source.token_or("tokenizer.ggml.eos_token_id", -1);
  config.rope = source.rope(config.head_dim);
  config.rotary_dim = source.rotary_dim(config.head_dim);
  family.read_gguf(source, config);
  check_config(config, source.path());
  return config;
}

std::vector<bool> all_but_every(std::int64_t interval, std::int64_t num_layers) {
  std::vector<bool> out(static_cast<std::size_t>(num_layers));
  for (std::int64_t i = 0; i < num_layers; ++i) out[static_cast<std::size_t>(i)] = (i + 1) % interval != 0;
  return out;
}

void check_config(const ModelConfig& config, const std::string& path) {
  const auto refuse_unless = [&](bool good, const std::string& problem) {
    MAGISTER_CHECK(good, ExitCode::kData, "{}: {} (no such model can run); fetch the model again", printable(path),
                   problem);
  };
  const std::int64_t H = config.num_attention_heads, K = config.num_key_value_heads, E = config.head_dim;
  refuse_unless(K <= H && H % K == 0, fmt::format("{} attention heads are not a multiple of {} key/value heads", H, K));
  refuse_unless(E >= 2 && E <= kMaxHeadDim && E % 2 == 0,
                fmt::format("head size {} (head_dim, or hidden size {} / {} heads) is not an even number from 2 to {}",
                            E, config.hidden_size, H, kMaxHeadDim));
  refuse_unless(H * E <= kMaxMlp, fmt::format("{} heads of {} are more than {} columns", H, E, kMaxMlp));
  const std::int64_t full_K = config.full_kv_heads, full_E = config.full_head_dim;
  refuse_unless(
      full_K == 0 || (full_K <= H && H % full_K == 0),
      fmt::format("{} attention heads are not a multiple of {} key/value heads of full attention", H, full_K));
  refuse_unless(full_E >= 0 && full_E % 2 == 0 && full_E <= kMaxHeadDim && H * full_E <= kMaxMlp,
                fmt::format("head size {} of full attention is not an even number up to {}", full_E, kMaxHeadDim));
  refuse_unless(config.rope.kind != RopeConfig::Kind::kDynamic || E > 2,
                fmt::format("head size {} is too small for dynamic rope scaling", E));
  const std::int64_t R = config.rotary_dim;
  refuse_unless(R >= 0 && R <= E && R % 2 == 0,
                fmt::format("{} rotated dimensions of a head of {} are not an even number of them", R, E));
  refuse_unless(config.rope.kind != RopeConfig::Kind::kLongRope ||
                    (static_cast<std::int64_t>(config.rope.short_factor.size()) == (R > 0 ? R : E) / 2 &&
                     config.rope.long_factor.size() == config.rope.short_factor.size()),
                fmt::format("{} short and {} long rotary factors do not suit {} rotated dimensions of a head",
                            config.rope.short_factor.size(), config.rope.long_factor.size(), R > 0 ? R : E));
  const std::int64_t sliding_R = config.sliding_rotary_dim;
  refuse_unless(sliding_R >= 0 && sliding_R <= E && sliding_R % 2 == 0,
                fmt::format("{} rotated dimensions of a head of {} in layers with a window are not an even number of "
                            "them",
                            sliding_R, E));
  refuse_unless(!config.sliding_rope || (config.sliding_rope->kind != RopeConfig::Kind::kDynamic &&
                                         config.sliding_rope->kind != RopeConfig::Kind::kLongRope),
                "the rotary embedding of sliding layers depends on the length of a sequence");
  refuse_unless(config.encoder || config.norm_placement == NormPlacement::kInput ||
                    (config.norm_kind == NormKind::kRms && !config.parallel_residual),
                "layer norms on a block's output, or norms there in parallel blocks");
  refuse_unless(
      config.num_experts == 0 || (config.num_experts_per_tok >= 1 && config.num_experts_per_tok <= config.num_experts),
      fmt::format("{} experts a token are more than the {} there are", config.num_experts_per_tok, config.num_experts));
  const RouterConfig& router = config.router;
  const std::int64_t X = config.num_experts, groups = router.groups;
  refuse_unless(groups == 1 || (X % groups == 0 && X / groups >= 2 && router.chosen_groups <= groups &&
                                config.num_experts_per_tok <= router.chosen_groups * (X / groups)),
                fmt::format("{} experts in {} groups, of which {} are chosen, for {} experts a token", X, groups,
                            router.chosen_groups, config.num_experts_per_tok));
  refuse_unless(config.num_experts == 0 || (!config.mlp_bias && !config.parallel_norms),
                "experts with biases of an MLP, or in parallel with attention behind a norm of their own");
  refuse_unless(config.layer_has_rope.empty() ||
                    static_cast<std::int64_t>(config.layer_has_rope.size()) == config.num_hidden_layers,
                fmt::format("{} layers have {} entries for their rotary embedding", config.num_hidden_layers,
                            config.layer_has_rope.size()));
  refuse_unless(
      config.sliding_window >= 0 &&
          (config.layer_is_sliding.empty() ||
           static_cast<std::int64_t>(config.layer_is_sliding.size()) == config.num_hidden_layers),
      fmt::format("{} layers have {} kinds of attention", config.num_hidden_layers, config.layer_is_sliding.size()));
  for (std::int64_t i = config.num_hidden_layers - config.shared_kv_layers; i < config.num_hidden_layers; ++i) {
    std::int64_t from = config.num_hidden_layers - config.shared_kv_layers - 1;
    while (from >= 0 && config.slides(from) != config.slides(i)) --from;
    refuse_unless(from >= 0,
                  fmt::format("layer {} shares the keys of an earlier layer of its kind, which none has", i));
  }
}

}  // namespace magister
