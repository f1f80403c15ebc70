// Every way to cut a token into two symbols is a merge with the token's rank, so encoding looks up pairs of ids and
// never hashes text. A character without a token takes part as a symbol of its own (kCharacter + code point).
#include "text/score_bpe.h"

#include <algorithm>
#include <numeric>

#include "magister/core/error.h"
#include "text/unicode.h"

namespace magister {
namespace {

constexpr TokenId kCharacter = 0x40000000;

std::size_t length_at(std::string_view text, std::size_t at, bool bytes) {
  return bytes ? 1 : code_point_at(text, at).bytes;
}

}  // namespace

ScoreBpe::ScoreBpe(const std::vector<RankedToken>& tokens, Rules rules) : rules_(std::move(rules)) {
  const bool bytes = rules_.reads_bytes;
  symbol_ids_.assign(bytes ? 256 : 0x110000, -1);
  Vocabulary ids;
  for (const RankedToken& token : tokens) {
    if (token.text.empty()) continue;
    ids.emplace(token.text, token.id);
    if (!bytes) cuts_.see(token.text);
    if (length_at(token.text, 0, bytes) != token.text.size()) continue;
    symbol_ids_[bytes ? static_cast<unsigned char>(token.text[0]) : code_point_at(token.text, 0).value] = token.id;
  }
  struct Pair {
    TokenId left, right;
    MergeTable::Merge merge;
  };
  std::vector<Pair> pairs;
  std::string left, right;
  const auto part = [&](const std::string& text) {
    if (text.size() == length_at(text, 0, bytes)) return symbol(text);
    const auto found = ids.find(text);
    return found == ids.end() ? -1 : found->second;
  };
  for (const RankedToken& token : tokens) {
    if (token.text.empty()) continue;
    for (std::size_t at = length_at(token.text, 0, bytes); at < token.text.size();
         at += length_at(token.text, at, bytes)) {
      left.assign(token.text, 0, at);
      right.assign(token.text, at);
      const TokenId l = part(left), r = l < 0 ? -1 : part(right);
      if (r >= 0) pairs.push_back({l, r, {token.rank, token.id}});
    }
  }
  merges_.reserve(pairs.size());
  for (const Pair& pair : pairs) merges_.add(pair.left, pair.right, pair.merge);
  if (rules_.whole_first) whole_ = ids;
  for (const auto& [text, id] : rules_.frozen) {
    if (text.empty()) continue;
    frozen_.emplace(text, id);
    longest_frozen_ = std::max(longest_frozen_, text.size());
    frozen_begins_[static_cast<unsigned char>(text[0])] = true;
  }
  cut_words_ = !bytes && !rules_.whole_first && symbol_ids_[0x2581] >= 0;
}

TokenId ScoreBpe::symbol(std::string_view character) const {
  if (rules_.reads_bytes) return symbol_ids_[static_cast<unsigned char>(character[0])];
  const char32_t c = code_point_at(character, 0).value;
  const TokenId id = symbol_ids_[c];
  return id >= 0 ? id : kCharacter + static_cast<TokenId>(c);
}

void ScoreBpe::give(TokenId symbol, std::vector<TokenId>& ids) const {
  if (symbol < kCharacter) {
    ids.push_back(symbol);
    return;
  }
  std::string text;
  append_utf8(text, static_cast<char32_t>(symbol - kCharacter));
  bool all = true;
  for (const char c : text) all = all && rules_.byte_ids[static_cast<unsigned char>(c)] >= 0;
  if (all) {
    for (const char c : text) ids.push_back(rules_.byte_ids[static_cast<unsigned char>(c)]);
  } else if (rules_.unknown >= 0) {
    ids.push_back(rules_.unknown);
  }
}

void ScoreBpe::encode_word(std::string_view piece, std::vector<TokenId>& ids) const {
  if (cache_.find(piece, ids)) return;
  const std::size_t begin = ids.size();
  const auto whole = whole_.empty() ? whole_.end() : whole_.find(std::string(piece));
  if (whole != whole_.end()) {
    ids.push_back(whole->second);
  } else {
    merge(piece, ids);
  }
  cache_.keep(piece, ids.data() + begin, ids.data() + ids.size());
}

void ScoreBpe::merge(std::string_view piece, std::vector<TokenId>& ids) const {
  std::vector<TokenId> symbols;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = length_at(piece, at, rules_.reads_bytes);
    const TokenId id = symbol(piece.substr(at, length));
    if (id >= 0) symbols.push_back(id);
    at += length;
  }
  merges_.apply(symbols);
  bool unknown_before = false;
  for (const TokenId symbol : symbols) {
    const std::size_t before = ids.size();
    give(symbol, ids);
    const bool unknown = symbol >= kCharacter && ids.size() == before + 1 && ids.back() == rules_.unknown;
    if (unknown && unknown_before && rules_.fuse_unknown) ids.pop_back();
    unknown_before = unknown;
  }
}

void ScoreBpe::encode_free(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.empty()) return;
  if (cut_words_) {
    cuts_.each(piece, [&](std::string_view word) { encode_word(word, ids); });
  } else {
    encode_word(piece, ids);
  }
}

std::size_t ScoreBpe::frozen_at(std::string_view text, TokenId& id) const {
  if (!frozen_begins_[static_cast<unsigned char>(text[0])]) return 0;
  for (std::size_t length = std::min(longest_frozen_, text.size()); length > 0; --length) {
    const auto found = frozen_.find(std::string(text.substr(0, length)));
    if (found == frozen_.end()) continue;
    id = found->second;
    return length;
  }
  return 0;
}

void ScoreBpe::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (frozen_.empty()) return encode_free(piece, ids);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < piece.size();) {
    TokenId id = -1;
    const std::size_t length = frozen_at(piece.substr(at), id);
    if (length == 0) {
      at += code_point_at(piece, at).bytes;
      continue;
    }
    encode_free(piece.substr(begin, at - begin), ids);
    ids.push_back(id);
    begin = at += length;
  }
  encode_free(piece.substr(begin), ids);
}

std::vector<RankedToken> rank_by_score(const std::vector<std::pair<std::string, TokenId>>& tokens,
                                       const std::vector<float>& scores) {
  std::vector<std::size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::vector<RankedToken> ranked;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    ranked.push_back({tokens[order[i]].first, tokens[order[i]].second, rank});
  }
  return ranked;
}

}  // namespace magister
