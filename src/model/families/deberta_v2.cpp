// DeBERTa v2 and v3 as a sequence classifier or reward model, with disentangled attention: scores of content with
// content, and of content with relative positions.
// Source: transformers' DebertaV2ForSequenceClassification; He et al., arXiv 2006.03654 and 2111.09543.
#include <algorithm>
#include <array>

#include "magister/core/error.h"
#include "model/families/encoder_fields.h"
#include "model/families/family.h"

namespace magister {
namespace deberta_v2 {

constexpr std::array kComputes = {"gelu by the normal distribution"};
constexpr std::array<std::pair<const char*, const char*>, 14> kRenames = {
    {{"embeddings.word_embeddings.weight", "deberta.embeddings.word_embeddings.weight"},
     {"embeddings.position_embeddings.weight", "deberta.embeddings.position_embeddings.weight"},
     {"embeddings.token_type_embeddings.weight", "deberta.embeddings.token_type_embeddings.weight"},
     {"embeddings.LayerNorm.weight", "deberta.embeddings.LayerNorm.weight"},
     {"embeddings.LayerNorm.bias", "deberta.embeddings.LayerNorm.bias"},
     {"encoder.rel_embeddings.weight", "deberta.encoder.rel_embeddings.weight"},
     {"encoder.LayerNorm.weight", "deberta.encoder.LayerNorm.weight"},
     {"encoder.LayerNorm.bias", "deberta.encoder.LayerNorm.bias"},
     {"attention.self.query.weight", "attention.self.query_proj.weight"},
     {"attention.self.key.weight", "attention.self.key_proj.weight"},
     {"attention.self.value.weight", "attention.self.value_proj.weight"},
     {"attention.self.query.bias", "attention.self.query_proj.bias"},
     {"attention.self.key.bias", "attention.self.key_proj.bias"},
     {"attention.self.value.bias", "attention.self.value_proj.bias"}}};

// The value is a list, or one string with | between its parts.
std::vector<std::string> parts_of(const HfConfig& source, const char* key) {
  if (!source.is_text(key)) return source.texts(key);
  std::vector<std::string> parts(1);
  for (const char c : source.text_or(key, "")) {
    if (c == '|') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return parts;
}

void read_distances(const HfConfig& source, const ModelConfig& config, EncoderConfig& encoder) {
  const std::string path = printable(source.path());
  constexpr std::int64_t kMost = 1 << 20;
  encoder.max_relative_positions = source.integer_or("max_relative_positions", -1, -1, kMost);
  if (encoder.max_relative_positions < 1) encoder.max_relative_positions = config.max_position_embeddings;
  const std::int64_t buckets = source.integer_or("position_buckets", -1, -1, kMost);
  MAGISTER_CHECK(buckets == -1 || buckets >= 2, ExitCode::kData,
                 "{}: position_buckets is {} (2 or more buckets are needed, or -1 for none); fetch the config again",
                 path, buckets);
  MAGISTER_CHECK(buckets / 2 + 1 < encoder.max_relative_positions, ExitCode::kData,
                 "{}: position_buckets is {} for {} relative positions (no distance is left for the logarithmic "
                 "buckets); fetch the config again",
                 path, buckets, encoder.max_relative_positions);
  encoder.position_buckets = std::max<std::int64_t>(buckets, 0);
  encoder.relative_span = buckets > 0 ? buckets : encoder.max_relative_positions;
  for (const std::string& type : parts_of(source, "pos_att_type")) {
    MAGISTER_CHECK(type == "c2p" || type == "p2c", ExitCode::kData,
                   "{}: pos_att_type has \"{}\" (known: c2p, p2c); use another model", path, printable(type));
    (type == "c2p" ? encoder.content_to_position : encoder.position_to_content) = true;
  }
  for (const std::string& norm : parts_of(source, "norm_rel_ebd")) {
    MAGISTER_CHECK(norm == "layer_norm" || norm == "none", ExitCode::kData,
                   "{}: norm_rel_ebd has \"{}\" (known: layer_norm, none); use another model", path, printable(norm));
    encoder.relative_norm = encoder.relative_norm || norm == "layer_norm";
  }
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_encoder(source, config);
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-7, 1e-20, 1.0);
  need_flag(source, "relative_attention", true, false);
  need_flag(source, "share_att_key", true, false);
  need_text(source, "pooler_hidden_act", "gelu");
  config.learned_positions = source.boolean_or("position_biased_input", true);
  EncoderConfig encoder;
  encoder.pooler = EncoderConfig::Pooler::kGelu;
  encoder.token_types = source.integer_or("type_vocab_size", 0, 0, 1 << 16);
  read_distances(source, config, encoder);
  config.encoder = encoder;
  // transformers allows other values of these sizes, but no published model has them.
  const std::array<std::pair<const char*, std::int64_t>, 4> computed = {{{"embedding_size", config.hidden_size},
                                                                         {"pooler_hidden_size", config.hidden_size},
                                                                         {"attention_head_size", config.head_dim},
                                                                         {"conv_kernel_size", 0}}};
  for (const auto& [key, value] : computed) {
    const std::int64_t given = source.integer_or(key, value, 0, 1 << 24);
    MAGISTER_CHECK(given == value, ExitCode::kData,
                   "{}: {} is {} (for encoders of this family only {} is supported, and results would be wrong); use "
                   "another model",
                   printable(source.path()), key, given, value);
  }
}

}  // namespace deberta_v2

extern const Family kDebertaV2Family;
const Family kDebertaV2Family{.name = "deberta-v2",
                              .model_type = "deberta-v2",
                              .architecture = "DebertaV2ForSequenceClassification",
                              .read_hf = deberta_v2::read_hf,
                              .computes = deberta_v2::kComputes,
                              .hf_renames = deberta_v2::kRenames,
                              .classifier = "",
                              .hf_layers = "deberta.encoder.layer."};

}  // namespace magister
