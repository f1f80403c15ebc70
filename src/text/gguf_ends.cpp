// See gguf_ends.h.
#include "magister/text/gguf_ends.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace magister {
namespace {

// End tokens of texts, turns and messages in all model families; models that call tools use the last six.
constexpr std::array<std::string_view, 22> kEnds = {"</s>",
                                                    "<eos>",
                                                    "<|endoftext|>",
                                                    "<|end_of_text|>",
                                                    "<｜end▁of▁sentence｜>",
                                                    "[EOS]",
                                                    "<|im_end|>",
                                                    "<|end|>",
                                                    "<end_of_turn>",
                                                    "<turn|>",
                                                    "<end_of_utterance>",
                                                    "[e~[",
                                                    "<|eot_id|>",
                                                    "<EOT>",
                                                    "_<EOT>",
                                                    "[EOT]",
                                                    "<|return|>",
                                                    "<|call|>",
                                                    "<|calls|>",
                                                    "<|flush|>",
                                                    "<|tool_response>",
                                                    "<|eom_id|>"};
// Code models end with these once they have filled a gap. llama.cpp uses any one of each row; here it is the first.
constexpr std::array<std::string_view, 5> kFimPad = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::array<std::string_view, 5> kFimRepository = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                                            "<reponame>"};
constexpr std::array<std::string_view, 1> kFimSeparator = {"<|file_sep|>"};

template <std::size_t n>
bool holds(const std::array<std::string_view, n>& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

class Ends {
 public:
  explicit Ends(const GgufVocabulary& vocabulary) : size_(static_cast<std::int64_t>(vocabulary.tokens.size())) {
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (is_gguf_end_text(vocabulary.tokens[id]) || vocabulary.tokens[id] == "<|plamo:eos|>")
        ids_[vocabulary.tokens[id]] = static_cast<TokenId>(id);
    }
    for (const std::string_view text : kEnds) add(text);
  }

  bool exists(std::int64_t id) const { return id >= 0 && id < size_; }
  void add(std::int64_t id) {
    if (exists(id)) ends_.insert(static_cast<TokenId>(id));
  }

  // Adds the token that a key names, else the first of these that exists.
  template <std::size_t n>
  void add_one(std::int64_t named, const std::array<std::string_view, n>& texts) {
    if (exists(named)) return add(named);
    const auto found =
        std::find_if(texts.begin(), texts.end(), [&](std::string_view text) { return ids_.contains(text); });
    if (found != texts.end()) add(*found);
  }

  // Removes end texts that have another meaning in the presence of certain others.
  void remove_those_within_texts() {
    // In gpt-oss and Solar <|end|> ends only a part of an answer; in Gemma 4 and PLaMo </s> is markup.
    const bool calls = has("<|call|>") || has("<|calls|>");
    if (calls && (has("<|return|>") || has("<|flush|>"))) remove("<|end|>");
    if (has("<|tool_response>") || has("<|plamo:eos|>")) remove("</s>");
  }

  std::vector<TokenId> in_order(std::int64_t first) const {
    std::vector<TokenId> ids(ends_.begin(), ends_.end());
    const auto at = std::find(ids.begin(), ids.end(), first);
    if (at != ids.end()) std::rotate(ids.begin(), at, at + 1);
    return ids;
  }

 private:
  void add(std::string_view text) {
    if (const auto at = ids_.find(text); at != ids_.end()) ends_.insert(at->second);
  }
  void remove(std::string_view text) {
    if (const auto at = ids_.find(text); at != ids_.end()) ends_.erase(at->second);
  }
  bool has(std::string_view text) const {
    const auto at = ids_.find(text);
    return at != ids_.end() && ends_.contains(at->second);
  }

  std::int64_t size_;
  std::map<std::string, TokenId, std::less<>> ids_;  // of the texts known here
  std::set<TokenId> ends_;
};

}  // namespace

bool is_gguf_end_text(std::string_view text) {
  return holds(kEnds, text) || holds(kFimPad, text) || holds(kFimRepository, text) || holds(kFimSeparator, text);
}

std::vector<TokenId> gguf_end_tokens(const GgufVocabulary& vocabulary, const GgufEndKeys& keys) {
  Ends ends(vocabulary);
  // The default for a missing key. For vocabularies with merges it would be token 11, a comma in GPT-2's.
  const std::int64_t absent = vocabulary.model == "llama" ? 2 : vocabulary.model == "t5" ? 1 : -1;
  const std::int64_t eos = ends.exists(vocabulary.eos_id) ? vocabulary.eos_id : absent;
  for (const std::int64_t id : {eos, keys.eot, keys.eom}) ends.add(id);
  ends.add_one(keys.fim_pad, kFimPad);
  ends.add_one(keys.fim_repository, kFimRepository);
  ends.add_one(keys.fim_separator, kFimSeparator);
  ends.remove_those_within_texts();
  return ends.in_order(eos);
}

}  // namespace magister
