#include "text/unigram.h"

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "text/unicode.h"

namespace magister {

void Trie::add(std::string_view text, std::int32_t value) {
  if (!text.empty()) entries_.emplace_back(text, value);
}

// Works on sorted entries, so the children of a node are adjacent, and level by level, without recursion.
void Trie::freeze() {
  std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    std::size_t begin, end;
  };
  nodes_.assign(1, {});
  std::vector<Range> ranges{{0, entries_.size()}};
  std::vector<Range> next;
  std::uint32_t first_node = 0;
  for (std::size_t depth = 0; !ranges.empty(); ++depth) {
    next.clear();
    const std::uint32_t level = first_node;
    first_node = static_cast<std::uint32_t>(nodes_.size());
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      const auto node = static_cast<std::size_t>(level) + r;
      std::size_t at = ranges[r].begin;
      while (at < ranges[r].end && entries_[at].first.size() == depth) nodes_[node].value = entries_[at++].second;
      nodes_[node].first = static_cast<std::uint32_t>(edges_.size());
      while (at < ranges[r].end) {
        const char byte = entries_[at].first[depth];
        const std::size_t begin = at;
        while (at < ranges[r].end && entries_[at].first[depth] == byte) ++at;
        edges_.emplace_back(static_cast<unsigned char>(byte), static_cast<std::uint32_t>(nodes_.size()));
        nodes_.emplace_back();
        next.push_back({begin, at});
        ++nodes_[node].count;
      }
    }
    std::swap(ranges, next);
  }
  for (std::uint32_t i = 0; i < nodes_[0].count; ++i) roots_[edges_[i].first] = edges_[i].second;
  entries_.clear();
  entries_.shrink_to_fit();
}

std::uint32_t Trie::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  const Node& from = nodes_[node];
  const auto begin = edges_.begin() + from.first, end = begin + from.count;
  const auto found =
      std::lower_bound(begin, end, byte, [](const auto& edge, unsigned char b) { return edge.first < b; });
  return found != end && found->first == byte ? found->second : 0;
}

Unigram::Unigram(const std::vector<UnigramToken>& tokens, Rules rules, std::string source)
    : rules_(rules), source_(std::move(source)), tokens_(tokens) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    trie_.add(tokens_[i].text, static_cast<std::int32_t>(i));
    ids_[tokens_[i].text] = tokens_[i].id;
  }
  trie_.freeze();
}

void Unigram::give_unknown(std::string_view text, std::vector<TokenId>& ids) const {
  if (rules_.look_up_fused) {
    if (const auto found = ids_.find(std::string(text)); found != ids_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  bool all = rules_.byte_fallback;
  for (const char c : text) all = all && rules_.byte_ids[static_cast<unsigned char>(c)] >= 0;
  if (all) {
    for (const char c : text) ids.push_back(rules_.byte_ids[static_cast<unsigned char>(c)]);
  } else {
    ids.push_back(rules_.unknown);
  }
}

void Unigram::encode_word(std::string_view piece, std::vector<TokenId>& ids) const {
  constexpr std::int32_t kNone = -2, kUnknown = -1;
  constexpr double kMostScore = 100'000;
  struct Best {
    double score = 0;
    std::uint32_t begin = 0;
    std::int32_t token = kNone;
  };
  std::vector<Best> best(piece.size() + 1);
  const auto rounded = [&](double a) {
    return rules_.single_precision ? static_cast<double>(static_cast<float>(a)) : a;
  };
  std::size_t reached = 0;  // the furthest end of a token so far
  const auto begin_again = [&](std::size_t at) {
    for (std::size_t i = reached; i > at; --i)
      if (best[i].token != kNone) best[i].score = rounded(best[i].score - best[at].score);
    best[at].score = 0;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = code_point_at(piece, at).bytes;
    if (rules_.single_precision && std::abs(best[at].score) > kMostScore) begin_again(at);
    const double here = best[at].score;
    bool whole_character = false;
    const auto offer = [&](std::size_t bytes, std::int32_t token, double score) {
      Best& end = best[at + bytes];
      reached = std::max(reached, at + bytes);
      score = rounded(score);
      if (end.token == kNone || score > end.score) end = {score, static_cast<std::uint32_t>(at), token};
    };
    trie_.walk(piece.substr(at), [&](std::size_t bytes, std::int32_t token) {
      offer(bytes, token, here + tokens_[static_cast<std::size_t>(token)].score);
      whole_character |= bytes == length;
    });
    if (!whole_character) {
      MAGISTER_CHECK(
          rules_.unknown >= 0, ExitCode::kData,
          "{}: has no token for \"{}\" and no unknown token (the text cannot be encoded); change the text, or "
          "use another tokenizer",
          source_, printable(piece.substr(at, length)));
      offer(length, kUnknown, here + rules_.unknown_score);
    }
    at += length;
  }
  // From the end backwards: adjacent unknown characters are joined.
  std::vector<std::pair<std::string_view, std::int32_t>> parts;
  for (std::size_t end = piece.size(); end > 0; end = best[end].begin) {
    const Best& node = best[end];
    const bool unknown = node.token == kUnknown || tokens_[static_cast<std::size_t>(node.token)].id == rules_.unknown;
    const std::string_view part = piece.substr(node.begin, end - node.begin);
    if (unknown && !parts.empty() && parts.back().second == kUnknown) {
      parts.back().first = std::string_view(part.data(), part.size() + parts.back().first.size());
    } else {
      parts.emplace_back(part, unknown ? kUnknown : node.token);
    }
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->second == kUnknown) {
      give_unknown(part->first, ids);
    } else {
      ids.push_back(tokens_[static_cast<std::size_t>(part->second)].id);
    }
  }
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  MAGISTER_CHECK(piece.size() < 0xFFFFFFFF, ExitCode::kData,
                 "a text of {} bytes is one word (more than any model reads); break it up", piece.size());
  if (cache_.find(piece, ids)) return;
  const std::size_t begin = ids.size();
  encode_word(piece, ids);
  cache_.keep(piece, ids.data() + begin, ids.data() + ids.size());
}

}  // namespace magister
