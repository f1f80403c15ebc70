// Keys that count tokens and may be left to the models: `auto`, their default, is a usual number, or less if the
// models' positions do not suffice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "magister/core/config.h"
#include "magister/model/model_config.h"
#include "magister/runtime/notes.h"

namespace magister {

struct ModelSection;

// The number of positions for which a model was made; 0: any number, or unknown.
struct Positions {
  std::uint64_t whole = 0;   // for a text that is read in one pass
  std::uint64_t cached = 0;  // for a text whose keys and values are kept from pass to pass
};
// Dynamic rotary scaling has max_position_embeddings times its factor, as in vLLM. Frequencies of a fixed length
// (RopeConfig::fixed_length) have no more positions than the texts for which they are made.
Positions positions_of(const ModelConfig& model);
// The positions of a second model.
using PositionsOf = std::function<Positions(const ModelSection&)>;
// The smaller of two limits, where 0 means no limit.
std::uint64_t fewer(std::uint64_t one, std::uint64_t other);

class LengthKey {
 public:
  LengthKey() = default;
  // Reads the key. usual: the value of `auto` if there are enough positions, and of tokens() until the models are
  // known.
  LengthKey(ConfigNode& node, const std::string& key, std::uint64_t usual, std::int64_t least, std::int64_t most);

  const std::string& key() const { return key_; }
  bool is_written() const { return is_written_; }
  std::uint64_t usual() const { return usual_; }
  std::uint64_t tokens() const { return tokens_; }
  // Makes this number usual because the records ask for it; fit_lengths() then leaves it all positions but one. Does
  // nothing if the key is written.
  void ask(std::uint64_t tokens);
  bool is_asked() const { return is_asked_; }
  // Sets the value of `auto`, in the resolved experiment, too, which then equals that of an experiment with the number
  // written. Does nothing if the key is written.
  void become(std::uint64_t tokens);

 private:
  std::optional<ConfigNode> node_;
  std::string key_;
  bool is_written_ = false, is_asked_ = false;
  std::uint64_t usual_ = 0, tokens_ = 0;
};

inline bool both_written(const LengthKey& one, const LengthKey& other) {
  return one.is_written() && other.is_written();
}

// Fits one length to this number of positions. Adds a note for users if it does not become the usual number.
void fit_length(LengthKey& length, std::uint64_t positions, Notes& notes);
// Fits the length of a prompt and of the text after it, which share the positions: the prompt gets at least half of
// them. Written values stay unchanged.
void fit_lengths(LengthKey& prompt, LengthKey& text, std::uint64_t positions, Notes& notes);

}  // namespace magister
