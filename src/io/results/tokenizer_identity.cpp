#include "magister/io/results/tokenizer_identity.h"

namespace magister {

bool same_tokenizer(const TokenizerIdentity& one, const TokenizerIdentity& other) {
  if (!one.is_known() || !other.is_known()) return false;
  return one.sha256 == other.sha256 || (!one.rules_sha256.empty() && one.rules_sha256 == other.rules_sha256);
}

TokenizerIdentity tokenizer_of(const ResultsReader& file) {
  const bool says = file.attribute(kTokenizerRulesAttribute) != nullptr;
  return {file.text("tokenizer_sha256"), says ? file.text(kTokenizerRulesAttribute) : ""};
}

}  // namespace magister
