// Keys that count tokens and may be left to the models: `auto`, their default, is a usual number, or what the models' positions leave of it.
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

// Positions that a model was made for; 0: any number, or unknown.
struct Positions {
  std::uint64_t whole = 0;   // of a text that is read in one pass
  std::uint64_t cached = 0;  // of one whose keys and values are kept from pass to pass
};
Positions positions_of(const ModelConfig& model);
// The positions of a second model.
using PositionsOf = std::function<Positions(const ModelSection&)>;
// The fewer of two; 0 is none.
std::uint64_t fewer(std::uint64_t one, std::uint64_t other);

class LengthKey {
 public:
  LengthKey() = default;
  // Reads it. usual: what `auto` stands for where there are positions enough; tokens(), until the models are known.
  LengthKey(ConfigNode& node, const std::string& key, std::uint64_t usual, std::int64_t least, std::int64_t most);

  const std::string& key() const { return key_; }
  bool is_written() const { return is_written_; }
  std::uint64_t usual() const { return usual_; }
  std::uint64_t tokens() const { return tokens_; }
  // What `auto` is: in the resolved experiment, too, which then says the same as where the number is written.
  void become(std::uint64_t tokens);

 private:
  std::optional<ConfigNode> node_;
  std::string key_;
  bool is_written_ = false;
  std::uint64_t usual_ = 0, tokens_ = 0;
};

inline bool both_written(const LengthKey& one, const LengthKey& other) {
  return one.is_written() && other.is_written();
}

// One length, at most so many positions. A key that does not become what is usual gets a note for people.
void fit_length(LengthKey& length, std::uint64_t positions, Notes& notes);
// A prompt's and that of the text behind it, which share the positions: half of them are the prompt's at least. What is written is left as it is.
void fit_lengths(LengthKey& prompt, LengthKey& text, std::uint64_t positions, Notes& notes);

}  // namespace magister
