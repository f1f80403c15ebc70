// The tokens that are looked for in a text before it is cut into pieces, and their ids. They are given in lists, one list after
// the other; ids follow from the order alone, whatever number a file writes beside a token.
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

  // A token that the vocabulary has keeps its id; one that was added before takes the new flags; any other gets the id behind the
  // highest. False: nothing has changed. Throws Error(kData) where the vocabulary has a gap and that id is another token's.
  bool add(const std::vector<AddedToken>& tokens);

  // In the order of the ids. What was special once stays so.
  std::vector<AddedToken> list() const;

  std::int64_t size() const;  // highest id + 1, with the vocabulary

 private:
  TokenId id_of(const std::string& content) const;  // -1: a new one

  const Vocabulary& vocab_;
  const std::string& source_;
  TokenId highest_ = -1;  // of the vocabulary
  std::unordered_set<std::string> special_texts_;
  std::unordered_map<std::string, TokenId> ids_;
  std::map<TokenId, AddedToken> tokens_;  // with the flags that were given last
};

// One line a token: what decides how texts become ids.
std::string identity_of(const std::vector<AddedToken>& added);

}  // namespace magister
