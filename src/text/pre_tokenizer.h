// Pre-tokenizers: split a text into pieces that BPE never merges across. Well-known patterns have hand-written
// scanners, every other pattern runs on PCRE2.
// Source: huggingface/tokenizers pre_tokenizers, behaviour of SplitDelimiterBehavior.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"

namespace magister {

// The byte-level patterns in common use.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A piece of a text. Text that a step wrote itself (with a space in front, for example) is kept in Pieces::written.
struct Piece {
  std::string_view text;
  bool at_start = false;  // no part of the whole text precedes it
};
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> written;
  void clear() {
    list.clear();
    written.clear();
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends the pieces of `piece`, in order.
  virtual void split(const Piece& piece, Pieces& out) const = 0;
};
using PreTokenizerPtr = std::unique_ptr<PreTokenizer>;

// force_pcre2: use PCRE2 where a hand-written scanner exists, as the reference for tests.
PreTokenizerPtr make_split(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& source,
                           bool force_pcre2 = false, Pattern::Syntax syntax = Pattern::Syntax::kOniguruma);
PreTokenizerPtr make_sequence(std::vector<PreTokenizerPtr> steps);

// pre_tokenizer_classes.cpp: by classes of characters.
PreTokenizerPtr make_digits(bool individual);
PreTokenizerPtr make_whitespace_split();
PreTokenizerPtr make_whitespace();  // words, and runs of other characters between them
PreTokenizerPtr make_punctuation(SplitBehavior behavior);
PreTokenizerPtr make_bert();
PreTokenizerPtr make_delimiter_split(char32_t delimiter);
PreTokenizerPtr make_fixed_length(std::size_t characters);
PreTokenizerPtr make_prefix_space();  // puts a space before each piece that has none
enum class PrependScheme { kFirst, kNever, kAlways };
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split);

// Makes pieces from matches: Isolated keeps each match and each gap, Removed only the gaps, the others join neighbours.
void split_at_matches(const Piece& piece, const std::vector<Match>& matches, SplitBehavior behavior, bool invert,
                      Pieces& out);

// Returns a pattern that matches the literal text and nothing else.
std::string escape_pattern(const std::string& literal);

}  // namespace magister
