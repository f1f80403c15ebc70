// Splits a piece into symbols, then merges them; see merge_table.cpp for the order of merges.
#include "text/bpe.h"

#include "magister/core/error.h"
#include "text/unicode.h"

namespace magister {
namespace {

std::array<std::string, 256> build_byte_characters() {
  std::array<std::string, 256> characters;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable_byte = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    append_utf8(characters[static_cast<std::size_t>(byte)], printable_byte ? static_cast<char32_t>(byte) : next++);
  }
  return characters;
}

TokenId id_of(const Vocabulary& vocab, const std::string& token) {
  const auto found = vocab.find(token);
  return found == vocab.end() ? -1 : found->second;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() {
  static const auto kCharacters = build_byte_characters();
  return kCharacters;
}

bool bytes_of_token(std::string_view token, std::string& bytes) {
  static const auto kBytes = [] {
    std::unordered_map<std::string_view, char> map;
    for (std::size_t byte = 0; byte < 256; ++byte) map[byte_characters()[byte]] = static_cast<char>(byte);
    return map;
  }();
  bytes.clear();
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = code_point_at(token, at).bytes;
    const auto found = kBytes.find(token.substr(at, length));
    if (found == kBytes.end()) return false;
    bytes += found->second;
    at += length;
  }
  return true;
}

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

Bpe::Bpe(const Vocabulary& vocab, const std::vector<std::pair<std::string, std::string>>& merges, BpeRules rules,
         const std::string& source)
    : rules_(std::move(rules)) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] =
        id_of(vocab, rules_.reads_bytes ? byte_characters()[byte] : byte_token(static_cast<unsigned char>(byte)));
  }
  if (!rules_.reads_bytes) character_ids_.assign(0x110000, -1);
  std::string bytes;
  for (const auto& [token, id] : vocab) {
    if (!rules_.reads_bytes && !token.empty()) {
      const CodePoint point = code_point_at(token, 0);
      if (point.bytes == token.size()) character_ids_[point.value] = id;
    }
    if (!rules_.prefix.empty() || !rules_.suffix.empty()) affixed_.emplace(token, id);
    if (rules_.reads_bytes && rules_.ignore_merges) {
      if (bytes_of_token(token, bytes)) whole_[bytes] = id;
    } else if (rules_.ignore_merges || (rules_.newlines_whole && token.find_first_not_of('\n') == std::string::npos)) {
      whole_.emplace(token, id);
    }
  }
  read_merges(vocab, merges, source);
  cut_words_ = !rules_.reads_bytes && !rules_.ignore_merges && affixed_.empty() && character_ids_[0x2581] >= 0;
}

void Bpe::read_merges(const Vocabulary& vocab, const std::vector<std::pair<std::string, std::string>>& merges,
                      const std::string& source) {
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& left = merges[rank].first;  // no structured binding: clang 14 cannot capture one
    const std::string& right = merges[rank].second;
    const auto known = [&](const std::string& token) {
      const TokenId id = id_of(vocab, token);
      MAGISTER_CHECK(id >= 0, ExitCode::kData,
                     "{}: merge {} (\"{}\" and \"{}\") names \"{}\", which is not in the "
                     "vocabulary (texts could not be encoded as the model was trained); fetch the file again",
                     source, rank, printable(left), printable(right), printable(token));
      return id;
    };
    const std::string joined = left + (right.size() >= rules_.prefix.size() ? right.substr(rules_.prefix.size()) : "");
    if (!rules_.reads_bytes) cuts_.see(joined);
    merges_.add(known(left), known(right), {static_cast<std::uint32_t>(rank), known(joined)}, rules_.keep_first);
  }
}

TokenId Bpe::symbol(std::string_view character, bool first, bool last) const {
  if (!affixed_.empty()) {
    std::string text = first ? std::string(character) : rules_.prefix + std::string(character);
    if (last) text += rules_.suffix;
    return id_of(affixed_, text);
  }
  if (rules_.reads_bytes) return byte_ids_[static_cast<unsigned char>(character[0])];
  return character_ids_[code_point_at(character, 0).value];
}

void Bpe::symbols_of(std::string_view piece, std::vector<TokenId>& symbols) const {
  bool waiting = false;  // an unknown token that may grow
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = rules_.reads_bytes ? 1 : code_point_at(piece, at).bytes;
    const std::string_view character = piece.substr(at, length);
    const bool first = at == 0, last = at + length == piece.size();
    at += length;
    const TokenId id = symbol(character, first, last);
    if (id >= 0) {
      if (waiting) symbols.push_back(rules_.unknown);
      waiting = false;
      symbols.push_back(id);
      continue;
    }
    if (rules_.byte_fallback) {
      std::string text = first ? std::string(character) : rules_.prefix + std::string(character);
      if (last) text += rules_.suffix;
      bool all = true;
      for (const char c : text) all = all && byte_ids_[static_cast<unsigned char>(c)] >= 0;
      if (all) {  // a pending unknown token is emitted later, as in the reference
        for (const char c : text) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
        continue;
      }
    }
    if (rules_.unknown < 0) continue;
    if (waiting && !rules_.fuse_unknown) symbols.push_back(rules_.unknown);
    waiting = true;
  }
  if (waiting) symbols.push_back(rules_.unknown);
}

void Bpe::encode_word(std::string_view piece, std::vector<TokenId>& ids) const {
  if (cache_.find(piece, ids)) return;
  std::vector<TokenId> symbols;
  const TokenId whole = whole_.empty() ? -1 : id_of(whole_, std::string(piece));
  if (whole >= 0) {
    symbols.push_back(whole);
  } else {
    symbols_of(piece, symbols);
    merges_.apply(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  cache_.keep(piece, symbols.data(), symbols.data() + symbols.size());
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.empty()) return;
  if (cut_words_) {
    cuts_.each(piece, [&](std::string_view word) { encode_word(word, ids); });
  } else {
    encode_word(piece, ids);
  }
}

}  // namespace magister
