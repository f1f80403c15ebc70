// The tokens with which verdicts begin after a prompt, whose own tokens do not change. They are the union of all
// continuations that the vocabulary allows, with and without a blank: a model writes "Yes" after a line end and " Yes"
// after "[/INST]".
#include "tasks/judge/verdict_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/tasks/judge/scoring.h"

namespace magister {
namespace {

constexpr const char* kEnds[] = {"\n", ":", "]", ">"};
constexpr const char* kVisibleSpace = "\xE2\x96\x81";

std::vector<TokenId> plain_ids(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.add_special_tokens = false, .special_tokens_in_text = false});
}

// True if the tokenizer puts a blank before every text that has none.
bool puts_blank(const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids = plain_ids(tokenizer, "a");
  return !ids.empty() && tokenizer.token_bytes(ids.front()).starts_with(' ');
}

bool is_bare_blank(const Tokenizer& tokenizer, TokenId id) { return tokenizer.token_bytes(id) == " "; }

std::set<TokenId> first_of(const Tokenizer& tokenizer, const VerdictClass& verdict) {
  std::set<TokenId> found;
  for (const std::string& word : verdict.words) {
    for (const std::string& spelling : verdict_spellings(word)) {
      for (const std::vector<TokenId>& ids : continuation_ids(tokenizer, spelling)) {
        // A space that is a token of its own tells nothing about the word after it.
        if (!is_bare_blank(tokenizer, ids.front())) found.insert(ids.front());
      }
    }
  }
  return found;
}

// Byte-level vocabularies have such a blank, too, but there it is rarely separate from the word, so one row is enough.
std::optional<TokenId> blank_before(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes) {
  const TokenId blank = tokenizer.token_to_id(kVisibleSpace);
  if (blank < 0 || !is_bare_blank(tokenizer, blank)) return std::nullopt;
  for (const VerdictClass& one : classes) {
    for (const std::vector<TokenId>& ids : continuation_ids(tokenizer, " " + one.words.front())) {
      if (ids.front() == blank) return blank;
    }
  }
  return std::nullopt;
}

// The second token of "10", if the first is the token of "1"; every continuation must have these two tokens.
std::optional<TokenId> zero_after_one(const Tokenizer& tokenizer, const std::set<TokenId>& ones) {
  std::optional<TokenId> zero;
  for (const std::vector<TokenId>& ten : continuation_ids(tokenizer, "10")) {
    if (ten.size() != 2 || !ones.contains(ten.front())) return std::nullopt;
    zero = ten.back();
  }
  return zero;
}

}  // namespace

std::set<std::string> verdict_spellings(const std::string& word) {
  std::string small = word, capital = word;
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
  std::transform(capital.begin(), capital.end(), capital.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string first = small;
  first[0] = capital[0];
  std::set<std::string> words;
  // One letter is a name ("A"); in lower case it is another word ("a").
  if (word.size() == 1) {
    words = {word};
  } else {
    words = {word, small, capital, first};
  }
  std::set<std::string> all = words;
  for (const std::string& spelling : words) all.insert(" " + spelling);
  return all;
}

std::vector<std::vector<TokenId>> continuation_ids(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::vector<TokenId>> ways;
  if (puts_blank(tokenizer)) {
    for (const char* const end : kEnds) {
      const std::vector<TokenId> before = plain_ids(tokenizer, end);
      const std::vector<TokenId> both = plain_ids(tokenizer, end + text);
      if (both.size() <= before.size() || !std::equal(before.begin(), before.end(), both.begin())) continue;
      std::vector<TokenId> way(both.begin() + static_cast<std::ptrdiff_t>(before.size()), both.end());
      if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(std::move(way));
    }
  }
  if (ways.empty()) {
    ways.push_back(plain_ids(tokenizer, text));
    if (ways.back().empty()) ways.clear();
  }
  return ways;
}

VerdictTokens verdict_tokens(const Tokenizer& tokenizer, const std::vector<VerdictClass>& classes) {
  std::vector<std::set<TokenId>> sets;
  sets.reserve(classes.size());
  for (const VerdictClass& one : classes) sets.push_back(first_of(tokenizer, one));
  VerdictTokens tokens;
  if (classes.size() == 10 && classes.back().name == "10") tokens.zero = zero_after_one(tokenizer, sets.front());
  if (tokens.zero) sets.back().clear();
  for (std::size_t c = 0; c < classes.size(); ++c) {
    for (std::size_t other = 0; other < c; ++other) {
      std::vector<TokenId> shared;
      std::set_intersection(sets[c].begin(), sets[c].end(), sets[other].begin(), sets[other].end(),
                            std::back_inserter(shared));
      MAGISTER_CHECK(shared.empty(), ExitCode::kConfig,
                     "the verdicts \"{}\" and \"{}\" begin with the same token \"{}\" of this "
                     "tokenizer (one row of logits cannot tell them apart); choose fewer classes or other words",
                     classes[other].name, classes[c].name,
                     shared.empty() ? "" : printable(tokenizer.decode(std::span(shared).first(1))));
    }
    MAGISTER_CHECK(
        !sets[c].empty() || (tokens.zero && c + 1 == classes.size()), ExitCode::kConfig,
        "the verdict \"{}\" has no token of its own in this tokenizer (it could never be given); choose other words",
        classes[c].name);
    tokens.first.emplace_back(sets[c].begin(), sets[c].end());
  }
  tokens.blank = blank_before(tokenizer, classes);
  tokens.follows_text = puts_blank(tokenizer) || tokens.blank;
  return tokens;
}

std::string VerdictTokens::identity() const {
  if (!follows_text) return "";
  nlohmann::ordered_json all = first;
  for (const std::optional<TokenId>& more : {zero, blank})
    all.push_back(more ? nlohmann::ordered_json(*more) : nlohmann::ordered_json());
  return all.dump();
}

}  // namespace magister
