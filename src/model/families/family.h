// What a family's file gives: how its config.json and its GGUF metadata become a ModelConfig. One file a family; the
// list of all stands in registry.cpp. Layers never see a Family.
// A new family: families/<name>.cpp with one Family, one line in registry.cpp, one variant in tests/oracle.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/model/model_config.h"
#include "model/families/gguf_config.h"
#include "model/families/hf_config.h"

namespace magister {

struct Family {
  const char* name;                    // ModelConfig::family
  const char* model_type;              // config.json; "" if the family has no such files
  const char* architecture;            // config.json's "architectures": the causal language model
  const char* gguf_architecture = "";  // "" where another family's name stands in GGUF files (Mistral's say llama)
  bool gguf_interleaved_rope_rows = false;
  // Beyond the common fields, already read into config.
  void (*read_hf)(const HfConfig& source, ModelConfig& config) = nullptr;
  void (*read_gguf)(const GgufConfig& source, ModelConfig& config) = nullptr;  // nullptr: no GGUF files
  // Keys of config.json and of GGUF metadata that HfConfig and GgufConfig refuse, unless their family computes what they say.
  std::span<const char* const> computes{};
  // What its safetensors call a weight of a layer, where that is not what the parameter table has: {table's name, its name}.
  std::span<const std::pair<const char*, const char*>> hf_renames{};
  bool hf_interleaved_rope_rows = false;
  double default_rope_theta = 10000.0;  // of a config.json that does not say
  // config.json's "architectures" of the same layers with a head of labels; null: the causal model's name with
  // ForSequenceClassification; "": transformers has no such class.
  const char* classifier = nullptr;
  // What its config.json calls a common key: {common name, its name}.
  std::span<const std::pair<const char*, const char*>> hf_keys{};
  std::int64_t default_mlp_widths =
      0;  // intermediate_size over hidden_size of a config.json that does not say; 0: it must
  // The same of GGUF files, without the layer's prefix.
  std::span<const std::pair<const char*, const char*>> gguf_renames{};
  const char* hf_layers = "model.layers.";
  const char* hf_optional_prefix = "";        // of all names, which older files lack
  std::span<const char* const> hf_ignored{};  // buffers of a layer in old files, beside rotary inv_freq
  std::span<const char* const>
      hf_unread{};                      // tensors outside the layers that files may hold and its class does not read
  bool hf_transposed_products = false;  // as TensorNames::transposed_products
};

const std::vector<const Family*>& families();
// A family that is not built in (tests): before the first model is read, and it must outlive the program's last use of one.
void add_family(const Family& family);

// Fields that all families spell the same way; then the family's own; then check_config.
// The source keeps what the family computes.
ModelConfig read_config(HfConfig& source, const Family& family);
ModelConfig read_config(GgufConfig& source, const Family& family);
const Family& family_of(const GgufConfig& source);
const Family& family_of(const HfConfig& source);

// True for all layers but every interval-th.
std::vector<bool> all_but_every(std::int64_t interval, std::int64_t num_layers);

// Rules between fields (heads over KV heads, an even head size, ...), Error(kData) naming `path`.
void check_config(const ModelConfig& config, const std::string& path);

// Names of the tensors; `interleaved` as TensorNames::interleaved_rope_rows.
TensorNames hf_tensor_names(const ModelConfig& config);  // by the common names
TensorNames hf_tensor_names(const ModelConfig& config, const Family& family);
// The names without this prefix of each.
TensorNames without_prefix(const ModelConfig& config, TensorNames names, const std::string& prefix);
TensorNames gguf_tensor_names(const ModelConfig& config, const Family& family);

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
// Every tensor that the config and its names ask for.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, const TensorNames& names);
// Scales of a cache of few bits that stand beside the weights are among the ignored tensors from here on, and are said.
void leave_out_cache_scales(ModelDescription& description, const TensorFile& file, const std::string& path);
// Refuses missing, unused and wrongly shaped or typed tensors by name.
void check_tensors(const ModelDescription& description, const TensorFile& file, const std::string& path);

}  // namespace magister
