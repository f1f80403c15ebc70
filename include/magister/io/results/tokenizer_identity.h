// Which tokenizer wrote the ids of a results file, and whether those of another one mean the same texts. Files of one tokenizer differ in
// white space, in how they write merges and in a stored truncation, so the files' bytes say too little.
#pragma once

#include <string>

#include "magister/io/results/reader.h"

namespace magister {

// The root attribute that holds Tokenizer::rules_sha256(); files of earlier versions have none.
inline constexpr const char* kTokenizerRulesAttribute = "tokenizer_rules_sha256";

struct TokenizerIdentity {
  // As Checkpoint::identity() gives it: of the file's bytes; "none" or empty: the data gave ids, and nobody says what they mean.
  std::string sha256;
  std::string rules_sha256;  // of what the tokenizer does; empty: not known

  bool is_known() const { return !sha256.empty() && sha256 != "none"; }
};

// Whether both are known and ids of one mean what ids of the other mean.
bool same_tokenizer(const TokenizerIdentity& one, const TokenizerIdentity& other);

TokenizerIdentity tokenizer_of(const ResultsReader& file);

}  // namespace magister
