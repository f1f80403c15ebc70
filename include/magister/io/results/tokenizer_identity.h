// Identifies the tokenizer of a results file's ids, and tells whether the ids of another tokenizer mean the same texts.
// A hash of the tokenizer's file is not enough: files of one tokenizer differ in white space, in the form of merges and
// in a stored truncation.
#pragma once

#include <string>

#include "magister/io/results/reader.h"

namespace magister {

// The root attribute that holds Tokenizer::rules_sha256(); files of earlier versions lack it.
inline constexpr const char* kTokenizerRulesAttribute = "tokenizer_rules_sha256";

struct TokenizerIdentity {
  // Hash of the tokenizer's file, as Checkpoint::identity() gives it. "none" or empty: the data set gave ids and their
  // meaning is unknown.
  std::string sha256;
  std::string rules_sha256;  // hash of the tokenizer's behaviour; empty: unknown

  bool is_known() const { return !sha256.empty() && sha256 != "none"; }
};

// True if both are known and their ids have the same meaning.
bool same_tokenizer(const TokenizerIdentity& one, const TokenizerIdentity& other);

TokenizerIdentity tokenizer_of(const ResultsReader& file);

}  // namespace magister
