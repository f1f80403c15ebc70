// Ids of added tokens; see added_vocabulary.h.
#include "text/added_vocabulary.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {
namespace {

bool same(const AddedToken& a, const AddedToken& b) {
  return a.content == b.content && a.single_word == b.single_word && a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
         a.normalized == b.normalized && a.special == b.special;
}

}  // namespace

AddedVocabulary::AddedVocabulary(const Vocabulary& vocab, const std::string& source) : vocab_(vocab), source_(source) {
  for (const auto& [text, id] : vocab) highest_ = std::max(highest_, id);
}

TokenId AddedVocabulary::id_of(const std::string& content) const {
  if (const auto found = ids_.find(content); found != ids_.end()) return found->second;
  const auto found = vocab_.find(content);
  return found == vocab_.end() ? -1 : found->second;
}

bool AddedVocabulary::add(const std::vector<AddedToken>& tokens) {
  bool changed = false;
  for (const AddedToken& token : tokens) {
    if (token.special) special_texts_.insert(token.content);
  }
  for (AddedToken token : tokens) {
    if (token.content.empty()) continue;
    token.id = id_of(token.content);
    const auto known = tokens_.find(token.id);
    if (known != tokens_.end() && same(known->second, token)) continue;
    changed = true;
    if (token.id < 0) {
      const auto count = static_cast<TokenId>(vocab_.size());
      token.id = tokens_.empty() ? count : std::max(count, tokens_.rbegin()->first + 1);
      MAGISTER_CHECK(
          token.id > highest_ ||
              std::none_of(vocab_.begin(), vocab_.end(), [&](const auto& one) { return one.second == token.id; }),
          ExitCode::kData,
          "{}: \"{}\" would get the id {}, which is another token's (the vocabulary has gaps, and added tokens "
          "are counted from its size); fetch the file again",
          source_, printable(token.content), token.id);
    }
    ids_[token.content] = token.id;
    tokens_[token.id] = token;
  }
  return changed;
}

std::vector<AddedToken> AddedVocabulary::list() const {
  std::vector<AddedToken> all;
  for (const auto& [id, token] : tokens_) {
    all.push_back(token);
    all.back().special = special_texts_.contains(token.content);
  }
  return all;
}

std::string identity_of(const std::vector<AddedToken>& added) {
  std::string lines;
  for (const AddedToken& token : added) {
    lines += fmt::format("\n{} {:d}{:d}{:d}{:d}{:d} {}", token.id, token.single_word, token.lstrip, token.rstrip,
                         token.normalized, token.special, token.content);
  }
  return lines;
}

std::int64_t AddedVocabulary::size() const {
  const TokenId added = tokens_.empty() ? -1 : tokens_.rbegin()->first;
  return static_cast<std::int64_t>(std::max(highest_, added)) + 1;
}

}  // namespace magister
