// HfConfig: range-checked reads of a Hugging Face config.json, every fault an Error(kData) with file, key and value.
// null counts as absent, as in transformers. Keys that would change results and that nobody here computes are refused
// by name; keys that change nothing (dtype, caches, dropout) are not looked at.
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

class HfConfig {
 public:
  static constexpr std::uint64_t kMaxBytes =
      1 << 20;  // real ones have 1-10 kB; nested brackets cost 100 B each once parsed

  explicit HfConfig(const std::string& path);
  ~HfConfig();
  HfConfig(HfConfig&&) noexcept;

  bool has(const std::string& key) const;       // present and not null
  bool is_empty(const std::string& key) const;  // an object without members
  bool is_null(const std::string& key) const;   // present and null: for the few keys whose default is not "none"
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const;  // required
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  double number_or(const std::string& key, double fallback, double least, double most) const;
  bool boolean_or(const std::string& key, bool fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  bool is_text(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;  // absent: empty
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t least,
                                     std::int64_t most) const;                 // absent: empty
  std::vector<bool> flags(const std::string& key) const;                       // a list of 0 and 1; absent: empty
  std::int64_t token_or(const std::string& key, std::int64_t fallback) const;  // a number, or the first of a list

  // Of a sequence classifier: id2label, or as many LABEL_i as num_labels says (2 where nothing is said).
  std::vector<std::string> labels() const;

  // theta: where the config does not say. Of the layers that see all keys where it tells types of layers apart and the family computes that.
  RopeConfig rope(std::int64_t max_position_embeddings, double theta) const;
  // Of the layers of this type, where the config tells them apart.
  std::optional<RopeConfig> rope_of(const std::string& layer_type, std::int64_t max_position_embeddings,
                                    double theta) const;
  // A number inside the rotary embedding's object, where it stands there.
  std::optional<double> rope_member(const std::string& name) const;
  // By partial_rotary_factor; 0: all of the head.
  std::int64_t rotary_dim(std::int64_t head_dim, double absent = 1.0) const;
  Activation activation() const;  // hidden_act; absent: silu
  // Which layers slide, by layer_types.
  std::vector<bool> sliding_layers(std::vector<bool> absent) const;
  // Common names for the keys of {common name, the file's name}, of which the file's alone counts.
  void call(std::span<const std::pair<const char*, const char*>> keys);
  // Two names of one value: a fault where both stand and differ.
  void refuse_two(const std::string& one, const std::string& other) const;
  // The tensor file has read and applied quantization_config: it is no longer a fault.
  void accept_quantization();
  // quantization_config, softcaps, experts, partial rotary embeddings, ... by name, but for what the family computes, which rope() and
  // rotary_dim() are told by this, too.
  void refuse_unsupported(std::span<const char* const> computes);
  // Refuses a decoder whose rows see what follows them: is_causal is not true.
  void require_causal() const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<nlohmann::json> root_;
  std::span<const char* const> computes_{};
  std::string activation_key_ = "hidden_act";  // the name in the file
};

}  // namespace magister
