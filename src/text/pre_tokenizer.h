// Pre-tokenizers: a text becomes pieces that BPE never merges across. Well-known patterns have hand-written scanners,
// every other pattern runs on PCRE2. Source: huggingface/tokenizers pre_tokenizers, behaviour of SplitDelimiterBehavior.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"

namespace magister {

// The byte-level patterns that are met in practice.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Pieces of a text; those that a step wrote itself (with a space before, say) are kept in `written`.
struct Piece {
  std::string_view text;
  bool at_start = false;  // nothing of the whole text stands before it
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

// force_pcre2: the reference implementation of the hand-written scanners, for tests.
PreTokenizerPtr make_split(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& source,
                           bool force_pcre2 = false, Pattern::Syntax syntax = Pattern::Syntax::kOniguruma);
PreTokenizerPtr make_sequence(std::vector<PreTokenizerPtr> steps);

// pre_tokenizer_classes.cpp: by classes of characters.
PreTokenizerPtr make_digits(bool individual);
PreTokenizerPtr make_whitespace_split();
PreTokenizerPtr make_whitespace();  // words, and runs of other signs between them
PreTokenizerPtr make_punctuation(SplitBehavior behavior);
PreTokenizerPtr make_bert();
PreTokenizerPtr make_delimiter_split(char32_t delimiter);
PreTokenizerPtr make_fixed_length(std::size_t characters);
PreTokenizerPtr make_prefix_space();  // a space before each piece that has none
enum class PrependScheme { kFirst, kNever, kAlways };
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split);

// Pieces from matches in a text: Isolated keeps each match and each gap, Removed the gaps, the others join neighbours.
void split_at_matches(const Piece& piece, const std::vector<Match>& matches, SplitBehavior behavior, bool invert,
                      Pieces& out);

// A literal text as a pattern that matches it and nothing else.
std::string escape_pattern(const std::string& literal);

}  // namespace magister
