// Pre-tokenizers: a text becomes pieces that BPE never merges across. Well-known patterns have hand-written scanners,
// every other pattern runs on PCRE2. Source: huggingface/tokenizers pre_tokenizers, behaviour of SplitDelimiterBehavior.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

// The byte-level patterns that are met in practice.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends the pieces of `piece`, in order, to out. Views stay inside `piece`.
  virtual void split(std::string_view piece, std::vector<std::string_view>& out) const = 0;
};

// force_pcre2: the reference implementation of the hand-written scanners, for tests.
std::unique_ptr<PreTokenizer> make_split(const std::string& pattern, SplitBehavior behavior, bool invert,
                                         const std::string& source, bool force_pcre2 = false);
std::unique_ptr<PreTokenizer> make_digits(bool individual);
std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> steps);

// A literal text as a pattern that matches it and nothing else.
std::string escape_pattern(const std::string& literal);

}  // namespace magister
