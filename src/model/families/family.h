// A Family describes how a family's config.json and GGUF metadata become a ModelConfig. Each family has one file;
// registry.cpp has the list of all. Layers never see a Family.
// To add a family: families/<name>.cpp with one Family, two lines in registry.cpp, one variant in tests/oracle.
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
  const char* model_type;              // model_type in config.json; "" if the family has no such files
  const char* architecture;            // "architectures" in config.json: the causal language model's class
  const char* gguf_architecture = "";  // "" where GGUF files use another family's name (Mistral's say llama)
  bool gguf_interleaved_rope_rows = false;
  // Reads the family's own fields; the common fields are in `config` already.
  void (*read_hf)(const HfConfig& source, ModelConfig& config) = nullptr;
  void (*read_gguf)(const GgufConfig& source, ModelConfig& config) = nullptr;  // nullptr: no GGUF files
  // Keys of config.json and GGUF metadata that HfConfig and GgufConfig refuse unless the family computes what they say.
  std::span<const char* const> computes{};
  // Weights of a layer whose name in safetensors files differs from the parameter table: {table's name, file's name}.
  std::span<const std::pair<const char*, const char*>> hf_renames{};
  // Instead of hf_renames where the names depend on the config.
  std::span<const std::pair<const char*, const char*>> (*hf_renames_of)(const ModelConfig& config) = nullptr;
  bool hf_interleaved_rope_rows = false;
  double default_rope_theta = 10000.0;  // for a config.json without rope_theta
  // The class of the same layers with a classification head in config.json's "architectures". null: the causal model's
  // name with ForSequenceClassification; "": transformers has no such class.
  const char* classifier = nullptr;
  // The causal model's class in files whose authors brought a class of their own; "": none.
  const char* published_architecture = "";
  // Common keys that have another name in this family's config.json: {common name, file's name}.
  std::span<const std::pair<const char*, const char*>> hf_keys{};
  // The same for names that a config.json may have instead of the common ones; those in the file count.
  std::span<const std::pair<const char*, const char*>> hf_other_keys{};
  // An object of config.json whose members are read under "<object>.<member>"; "": none.
  const char* hf_object = "";
  // The key with the number of layers after the model's own, which predict several tokens at once. Their tensors are
  // not read. "": files have no such layers.
  const char* hf_later_layers = "";
  // Whole numbers of the config's class for keys that config.json lacks.
  std::span<const std::pair<const char*, std::int64_t>> hf_defaults{};
  // The same for a text_config, which may leave out even sizes where they are its class's (LLaVA's does).
  std::span<const std::pair<const char*, std::int64_t>> hf_text_defaults{};
  // intermediate_size / hidden_size where config.json does not give intermediate_size; 0: the key is required.
  std::int64_t default_mlp_widths = 0;
  bool mlp_by_layer = false;  // intermediate_size may be a list with a number for each layer
  // Like hf_renames for GGUF files, without the layer's prefix.
  std::span<const std::pair<const char*, const char*>> gguf_renames{};
  const char* hf_layers = "model.layers.";
  const char* hf_optional_prefix = "";        // prefix of all names that older files lack
  std::span<const char* const> hf_ignored{};  // buffers of a layer in old files, in addition to rotary inv_freq
  // Tensors outside the layers that files may hold and that the family's class does not read.
  std::span<const char* const> hf_unread{};
  bool hf_transposed_products = false;  // see TensorNames::transposed_products
};

const std::vector<const Family*>& families();
// Adds a family that is not built in (for tests). Call it before the first model is read. `family` must stay valid
// until the program ends.
void add_family(const Family& family);

// Reads the fields that all families spell in the same way, then the family's own, then calls check_config(). The
// source remembers what the family computes.
ModelConfig read_config(HfConfig& source, const Family& family);
ModelConfig read_config(GgufConfig& source, const Family& family);
const Family& family_of(const GgufConfig& source);
const Family& family_of(const HfConfig& source);

// False for every interval-th layer, true for all others.
std::vector<bool> all_but_every(std::int64_t interval, std::int64_t num_layers);

// Checks rules between fields (query heads are a multiple of KV heads, an even head size, ...). Throws Error(kData)
// that names `path`.
void check_config(const ModelConfig& config, const std::string& path);

TensorNames hf_tensor_names(const ModelConfig& config);  // by the common names
TensorNames hf_tensor_names(const ModelConfig& config, const Family& family);
// The same names with another prefix, where they have the first.
TensorNames with_prefix(const ModelConfig& config, TensorNames names, const std::string& prefix,
                        const std::string& other);
TensorNames gguf_tensor_names(const ModelConfig& config, const Family& family);

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
// Every tensor that the config requires, under its name in the file.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, const TensorNames& names);
// Takes the names of experts that the file holds as transformers' modules do, all of a layer in one tensor.
void use_fused_experts(ModelDescription& description, const TensorFile& file);
// Adds scales of a quantised KV cache, which some files hold, to the ignored tensors, and logs them.
void leave_out_cache_scales(ModelDescription& description, const TensorFile& file, const std::string& path);
// Adds the tensors of multi-token prediction to the ignored ones, and logs them: parts named mtp, and layers after the
// model's own.
void leave_out_later_layers(ModelDescription& description, const TensorFile& file, const Family& family,
                            const std::string& path);
// Throws Error(kData) that names a missing or unused tensor, or one of wrong shape or dtype.
void check_tensors(const ModelDescription& description, const TensorFile& file, const std::string& path);

}  // namespace magister
