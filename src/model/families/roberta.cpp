// RoBERTa and XLM-RoBERTa as sequence classifiers: BERT whose position numbers begin after the padding id, with a
// product and tanh of the classification head instead of the pooler.
// Source: transformers' RobertaForSequenceClassification and RobertaEmbeddings; Liu et al., arXiv 1907.11692; Conneau
// et al., arXiv 1911.02116.
#include <array>

#include "magister/core/error.h"
#include "model/families/encoder_fields.h"
#include "model/families/family.h"

namespace magister {
namespace roberta {

constexpr std::array kComputes = {"gelu by the normal distribution"};
constexpr std::array<std::pair<const char*, const char*>, 9> kRenames = {
    {{"embeddings.word_embeddings.weight", "roberta.embeddings.word_embeddings.weight"},
     {"embeddings.position_embeddings.weight", "roberta.embeddings.position_embeddings.weight"},
     {"embeddings.token_type_embeddings.weight", "roberta.embeddings.token_type_embeddings.weight"},
     {"embeddings.LayerNorm.weight", "roberta.embeddings.LayerNorm.weight"},
     {"embeddings.LayerNorm.bias", "roberta.embeddings.LayerNorm.bias"},
     {"pooler.dense.weight", "classifier.dense.weight"},
     {"pooler.dense.bias", "classifier.dense.bias"},
     {"classifier.weight", "classifier.out_proj.weight"},
     {"classifier.bias", "classifier.out_proj.bias"}}};
// These belong to the pretrained model; the classification head does not read them.
constexpr std::array kUnread = {"roberta.pooler.dense.weight", "roberta.pooler.dense.bias"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_encoder(source, config);
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-12, 1e-20, 1.0);
  need_flag(source, "is_decoder", false, false);
  need_flag(source, "add_cross_attention", false, false);
  need_text(source, "position_embedding_type", "absolute");
  config.learned_positions = true;
  EncoderConfig encoder;
  encoder.token_types = source.integer_or("type_vocab_size", 2, 1, 1 << 16);
  MAGISTER_CHECK(!source.is_null("pad_token_id"), ExitCode::kData,
                 "{}: pad_token_id is null (positions are counted from it); fetch the config again",
                 printable(source.path()));
  const std::int64_t padding = source.integer_or("pad_token_id", 1, 0, config.vocab_size - 1);
  MAGISTER_CHECK(padding + 1 < config.max_position_embeddings, ExitCode::kData,
                 "{}: pad_token_id is {} and max_position_embeddings {} (positions begin after the padding id, and "
                 "none is left); fetch the config again",
                 printable(source.path()), padding, config.max_position_embeddings);
  encoder.first_position = padding + 1;
  config.max_position_embeddings -= encoder.first_position;
  config.encoder = encoder;
}

}  // namespace roberta

extern const Family kRobertaFamily, kXlmRobertaFamily;
const Family kRobertaFamily{.name = "roberta",
                            .model_type = "roberta",
                            .architecture = "RobertaForSequenceClassification",
                            .read_hf = roberta::read_hf,
                            .computes = roberta::kComputes,
                            .hf_renames = roberta::kRenames,
                            .classifier = "",
                            .hf_layers = "roberta.encoder.layer.",
                            .hf_unread = roberta::kUnread};
const Family kXlmRobertaFamily{.name = "xlm-roberta",
                               .model_type = "xlm-roberta",
                               .architecture = "XLMRobertaForSequenceClassification",
                               .read_hf = roberta::read_hf,
                               .computes = roberta::kComputes,
                               .hf_renames = roberta::kRenames,
                               .classifier = "",
                               .hf_layers = "roberta.encoder.layer.",
                               .hf_unread = roberta::kUnread};

}  // namespace magister
