// BERT as a sequence classifier: learned vectors of positions and token types, and a pooler with tanh over the first
// token.
// Source: transformers' BertForSequenceClassification; Devlin et al., arXiv 1810.04805.
#include <array>

#include "model/families/encoder_fields.h"
#include "model/families/family.h"

namespace magister {
namespace bert {

constexpr std::array kComputes = {"gelu by the normal distribution"};
constexpr std::array<std::pair<const char*, const char*>, 7> kRenames = {
    {{"embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"},
     {"embeddings.position_embeddings.weight", "bert.embeddings.position_embeddings.weight"},
     {"embeddings.token_type_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"},
     {"embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.weight"},
     {"embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.bias"},
     {"pooler.dense.weight", "bert.pooler.dense.weight"},
     {"pooler.dense.bias", "bert.pooler.dense.bias"}}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_encoder(source, config);
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-12, 1e-20, 1.0);
  need_flag(source, "is_decoder", false, false);
  need_flag(source, "add_cross_attention", false, false);
  need_text(source, "position_embedding_type", "absolute");
  config.learned_positions = true;
  EncoderConfig encoder;
  encoder.token_types = source.integer_or("type_vocab_size", 2, 1, 1 << 16);
  config.encoder = encoder;
}

}  // namespace bert

extern const Family kBertFamily;
const Family kBertFamily{.name = "bert",
                         .model_type = "bert",
                         .architecture = "BertForSequenceClassification",
                         .read_hf = bert::read_hf,
                         .computes = bert::kComputes,
                         .hf_renames = bert::kRenames,
                         .classifier = "",
                         .hf_layers = "bert.encoder.layer."};

}  // namespace magister
