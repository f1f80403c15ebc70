// DistilBERT as a sequence classifier: BERT without token types, with ReLU in the pooler.
// Source: transformers' DistilBertForSequenceClassification; Sanh et al., arXiv 1910.01108.
#include <array>

#include "model/families/encoder_fields.h"
#include "model/families/family.h"

namespace magister {
namespace distilbert {

using Pair = std::pair<const char*, const char*>;

constexpr std::array kComputes = {"gelu by the normal distribution"};
constexpr std::array<Pair, 5> kKeys = {{{"hidden_size", "dim"},
                                        {"intermediate_size", "hidden_dim"},
                                        {"num_hidden_layers", "n_layers"},
                                        {"num_attention_heads", "n_heads"},
                                        {"hidden_act", "activation"}}};
constexpr std::array<Pair, 22> kRenames = {
    {{"embeddings.word_embeddings.weight", "distilbert.embeddings.word_embeddings.weight"},
     {"embeddings.position_embeddings.weight", "distilbert.embeddings.position_embeddings.weight"},
     {"embeddings.LayerNorm.weight", "distilbert.embeddings.LayerNorm.weight"},
     {"embeddings.LayerNorm.bias", "distilbert.embeddings.LayerNorm.bias"},
     {"pooler.dense.weight", "pre_classifier.weight"},
     {"pooler.dense.bias", "pre_classifier.bias"},
     {"attention.self.query.weight", "attention.q_lin.weight"},
     {"attention.self.key.weight", "attention.k_lin.weight"},
     {"attention.self.value.weight", "attention.v_lin.weight"},
     {"attention.self.query.bias", "attention.q_lin.bias"},
     {"attention.self.key.bias", "attention.k_lin.bias"},
     {"attention.self.value.bias", "attention.v_lin.bias"},
     {"attention.output.dense.weight", "attention.out_lin.weight"},
     {"attention.output.dense.bias", "attention.out_lin.bias"},
     {"attention.output.LayerNorm.weight", "sa_layer_norm.weight"},
     {"attention.output.LayerNorm.bias", "sa_layer_norm.bias"},
     {"intermediate.dense.weight", "ffn.lin1.weight"},
     {"intermediate.dense.bias", "ffn.lin1.bias"},
     {"output.dense.weight", "ffn.lin2.weight"},
     {"output.dense.bias", "ffn.lin2.bias"},
     {"output.LayerNorm.weight", "output_layer_norm.weight"},
     {"output.LayerNorm.bias", "output_layer_norm.bias"}}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_encoder(source, config);
  config.rms_norm_eps = 1e-12;  // transformers ignores the config's value
  config.learned_positions = true;
  EncoderConfig encoder;
  encoder.pooler = EncoderConfig::Pooler::kRelu;
  config.encoder = encoder;
}

}  // namespace distilbert

extern const Family kDistilBertFamily;
const Family kDistilBertFamily{.name = "distilbert",
                               .model_type = "distilbert",
                               .architecture = "DistilBertForSequenceClassification",
                               .read_hf = distilbert::read_hf,
                               .computes = distilbert::kComputes,
                               .hf_renames = distilbert::kRenames,
                               .classifier = "",
                               .hf_keys = distilbert::kKeys,
                               .hf_layers = "distilbert.transformer.layer."};

}  // namespace magister
