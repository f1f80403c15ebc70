// Added tokens and their ids. Added tokens are found in a text before it is split into pieces. They come in lists, one
// after the other; ids follow from the order alone, whatever number a file gives a token.
// Source: huggingface/tokenizers tokenizer/added_vocabulary (add_tokens).
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/tokenizer_model.h"

namespace magister {

class AddedVocabulary {
 public:
  // vocab is kept by reference.
  AddedVocabulary(const Vocabulary& vocab, const std::string& source);

  // A token of the vocabulary keeps its id; a token added before takes the new flags; any other gets the next id,
  // counted from the vocabulary's size. Returns false if nothing changed. Throws Error(kData) if the vocabulary has a
  // gap and that id belongs to another token.
  bool add(const std::vector<AddedToken>& tokens);

  // In the order of the ids. A token that was special once stays special.
  std::vector<AddedToken> list() const;

  std::int64_t size() const;  // highest id + 1, vocabulary included

 private:
  TokenId id_of(const std::string& content) const;  // -1: a new token

  const Vocabulary& vocab_;
  const std::string& source_;
  TokenId highest_ = -1;  // in the vocabulary
  std::unordered_set<std::string> special_texts_;
  std::unordered_map<std::string, TokenId> ids_;
  std::map<TokenId, AddedToken> tokens_;  // with the latest flags
};

// Returns one line per token with everything that decides how texts become ids.
std::string identity_of(const std::vector<AddedToken>& added);

}  // namespace magister
