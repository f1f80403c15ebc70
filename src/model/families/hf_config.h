// HfConfig: range-checked reads of a Hugging Face config.json. Every fault is an Error(kData) with file, key and value.
// null counts as absent, as in transformers. Keys that would change results and that the family does not compute are
// refused by name; keys that change nothing (dtype, caches, dropout) are ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/model/model_config.h"

namespace magister {

struct OuterModel;  // outer_model.h

class HfConfig {
 public:
  // Real files have 1-10 kB. The limit bounds the memory of nested brackets, which take 100 B each once parsed.
  static constexpr std::uint64_t kMaxBytes = 1 << 20;

  explicit HfConfig(const std::string& path);
  ~HfConfig();
  HfConfig(HfConfig&&) noexcept;

  bool has(const std::string& key) const;        // present and not null
  bool is_absent(const std::string& key) const;  // not even null: where the class's default counts
  bool is_empty(const std::string& key) const;   // an object without members
  bool is_null(const std::string& key) const;    // present and null: for the few keys where null differs from absent
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const;  // required
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  double number_or(const std::string& key, double fallback, double least, double most) const;
  bool boolean_or(const std::string& key, bool fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  bool is_text(const std::string& key) const;
  bool is_list(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;  // absent: empty
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t least,
                                     std::int64_t most) const;                           // absent: empty
  std::vector<double> numbers(const std::string& key, double least, double most) const;  // absent: empty
  // One of the numbers of layers, by per_layer_config; a layer that this does not name has `absent`. Other numbers by
  // layer than those of `known` are refused.
  std::vector<std::int64_t> by_layer(const std::string& name, std::span<const char* const> known, std::int64_t layers,
                                     std::int64_t absent) const;
  std::vector<bool> flags(const std::string& key) const;                       // a list of 0 and 1; absent: empty
  std::int64_t token_or(const std::string& key, std::int64_t fallback) const;  // a number, or the first of a list

  // Labels of a sequence classifier: id2label, or LABEL_i for i below num_labels (2 without either key).
  std::vector<std::string> labels() const;

  // Rotary embedding; theta: for a config without it. If the config has one rotary embedding per layer type and the
  // family supports that, this is the one of layers with full attention.
  RopeConfig rope(std::int64_t max_position_embeddings, double theta) const;
  // Lists of texts with a number each: every list as often as its number says, one after another (GPT-Neo).
  std::vector<std::string> repeated_texts(const std::string& key) const;
  // The rotary embedding of layers of this type, if the config has one per layer type.
  std::optional<RopeConfig> rope_of(const std::string& layer_type, std::int64_t max_position_embeddings,
                                    double theta) const;
  // A number inside the rotary embedding's object, if the object has it.
  std::optional<double> rope_member(const std::string& name) const;
  // From partial_rotary_factor; 0: all dimensions of the head.
  // layer_type: from the rotary embedding of these layers, if the config has one per layer type.
  std::int64_t rotary_dim(std::int64_t head_dim, double absent = 1.0, const std::string& layer_type = "") const;
  Activation activation() const;  // hidden_act; absent: silu
  // Tells for each layer whether it has a sliding window, from layer_types; `absent` if the config lacks it.
  std::vector<bool> sliding_layers(std::vector<bool> absent) const;
  // keys: {common name, name in this file}. Stores each value under its common name. A common name alone in the file is
  // ignored; one that differs from the value is refused.
  void call(std::span<const std::pair<const char*, const char*>> keys);
  // Like call(), but a common name that the file has alone stays.
  void also_call(std::span<const std::pair<const char*, const char*>> keys);
  // Stores each member of this object as a key "<object>.<member>".
  void lift(const std::string& object);
  // Sets the keys that are not in the file, not even as null.
  void fill(std::span<const std::pair<const char*, std::int64_t>> defaults);
  // If the file is that of a model of images and texts: from now on its text decoder's config alone is read. null: it
  // is not.
  const OuterModel* enter_text();
  // Two names of one value: throws Error(kData) if both are present and differ.
  void refuse_two(const std::string& one, const std::string& other) const;
  // Makes quantization_config acceptable, because the tensor file has read and applied it.
  void accept_quantization();
  // Refuses keys for quantisation, softcaps, experts, partial rotary embeddings and so on by name, except those that
  // the family computes. rope(), rotary_dim() and activation() use `computes`, too.
  void refuse_unsupported(std::span<const char* const> computes);
  // Refuses a decoder that attends to later tokens: is_causal is present and not true.
  void require_causal() const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<nlohmann::json> root_;
  std::span<const char* const> computes_{};
  std::string activation_key_ = "hidden_act";  // name of the key in the file
};

}  // namespace magister
