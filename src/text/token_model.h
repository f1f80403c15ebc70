// TokenModel: turns a piece of text into token ids. BPE of several kinds, Unigram, WordPiece and WordLevel implement
// it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "magister/core/types.h"

namespace magister {

using Vocabulary = std::unordered_map<std::string, TokenId>;  // token text, as written in the file -> id

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one piece. Thread-safe.
  virtual void encode(std::string_view piece, std::vector<TokenId>& ids) const = 0;
};

}  // namespace magister
