// Encoding: added tokens cut the raw text, the rest is normalised, cut again, split into pieces and merged.
// Source: huggingface/tokenizers tokenizer/added_vocabulary (order of the steps, leftmost longest match).
#include "magister/text/tokenizer.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "text/tokenizer_model.h"
#include "text/unicode.h"

namespace magister {

Tokenizer::Tokenizer(std::unique_ptr<Model> model) : model_(std::move(model)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::Model::finish() {
  constexpr TokenId kMaxId = 1 << 24;  // no vocabulary is that large; ids become sizes below
  TokenId highest = -1;
  const auto see = [&](TokenId id, const std::string& text) {
    MAGISTER_CHECK(id >= 0 && id <= kMaxId, ExitCode::kData,
                   "{}: token \"{}\" has the id {} (ids go from 0 to {}); fetch the "
                   "file again",
                   source, printable(text), id, kMaxId);
    highest = std::max(highest, id);
  };
  for (const auto& [text, id] : bpe->vocab()) see(id, text);
  for (const AddedToken& token : added) see(token.id, token.content);
  MAGISTER_CHECK(highest >= 0, ExitCode::kData,
                 "{}: the vocabulary is empty (nothing can be encoded); fetch the file again", source);
  bytes_of_id.assign(static_cast<std::size_t>(highest) + 1, {});
  special_id.assign(bytes_of_id.size(), false);
  std::vector<bool> taken(bytes_of_id.size(), false);
  for (const auto& [text, id] : bpe->vocab()) {
    MAGISTER_CHECK(!taken[static_cast<std::size_t>(id)], ExitCode::kData,
                   "{}: id {} belongs to two tokens, one is \"{}\" (texts "
                   "could not be decoded); fetch the file again",
                   source, id, printable(text));
    taken[static_cast<std::size_t>(id)] = true;
    std::string& bytes = bytes_of_id[static_cast<std::size_t>(id)];
    if (!bytes_of_token(text, bytes)) bytes = text;
    id_of_text[text] = id;
  }
  for (auto& lists : added_by_first_byte) lists.assign(256, {});
  for (std::size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    bytes_of_id[static_cast<std::size_t>(token.id)] = token.content;
    special_id[static_cast<std::size_t>(token.id)] = token.special;
    id_of_text[token.content] = token.id;
    if (token.content.empty()) continue;
    added_by_first_byte[token.normalized ? 1 : 0][static_cast<unsigned char>(token.content[0])].push_back(i);
  }
  for (auto& lists : added_by_first_byte) {
    for (auto& list : lists) {
      std::stable_sort(list.begin(), list.end(),
                       [&](std::size_t a, std::size_t b) { return added[a].content.size() > added[b].content.size(); });
    }
  }
}

namespace {

bool is_word(char32_t c) { return (char_class(c) & kWord) != 0; }

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (end < text.size() && is_word(code_point_at(text, end).value)) return true;
  if (begin == 0) return false;
  std::size_t before = begin - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  return is_word(code_point_at(text, before).value);
}

constexpr std::string_view kGuard = "\xEF\xB7\x90";  // U+FDD0: no character, so no text has it

std::string without_guards(std::string_view text) {
  std::string plain;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(kGuard, begin), text.size());
    plain += text.substr(begin, end - begin);
    begin = end + kGuard.size();
  }
  return plain;
}

// Calls rest(text) for what lies between added tokens and token(index) for each of them.
template <typename Rest, typename Token>
void cut_at_added_tokens(const std::vector<AddedToken>& added,
                         const std::vector<std::vector<std::size_t>>& by_first_byte, bool take_special,
                         std::string_view text, const Rest& rest, const Token& token) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* found = nullptr;
    std::size_t index = 0;
    for (const std::size_t i : by_first_byte[static_cast<unsigned char>(text[at])]) {
      const AddedToken& candidate = added[i];
      if (text.compare(at, candidate.content.size(), candidate.content) != 0) continue;
      if (candidate.special && !take_special) continue;
      if (candidate.single_word && touches_word(text, at, at + candidate.content.size())) continue;
      found = &candidate;
      index = i;
      break;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    std::size_t from = at, to = at + found->content.size();
    if (found->lstrip) {
      while (from > begin) {
        std::size_t before = from - 1;
        while (before > begin && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
        if (!is_space(code_point_at(text, before).value)) break;
        from = before;
      }
    }
    if (found->rstrip) {
      while (to < text.size()) {
        const CodePoint point = code_point_at(text, to);
        if (!is_space(point.value)) break;
        to += point.bytes;
      }
    }
    if (from > begin) rest(text.substr(begin, from - begin));
    token(index);
    begin = at = to;
  }
  if (begin < text.size()) rest(text.substr(begin));
}

}  // namespace

void Tokenizer::encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& ids) const {
  const std::size_t bad = find_invalid_utf8(text);
  MAGISTER_CHECK(bad == text.size(), ExitCode::kData,
                 "a text is not valid UTF-8 at byte {} (its tokens would be guessed); "
                 "convert it to UTF-8",
                 bad);
  const Model& model = *model_;
  if (options.add_special_tokens) ids.insert(ids.end(), model.prefix.begin(), model.prefix.end());
  const auto take = [&](std::size_t index) { ids.push_back(model.added[index].id); };
  std::vector<std::string_view> pieces;
  const auto merge = [&](std::string_view part) {
    std::string with_space;
    if (model.add_prefix_space && !part.starts_with(' ')) {
      with_space = " " + std::string(part);
      part = with_space;
    }
    pieces.clear();
    if (model.pre_tokenizer) {
      model.pre_tokenizer->split(part, pieces);
    } else {
      pieces.push_back(part);
    }
    for (const std::string_view piece : pieces) model.bpe->encode(piece, ids);
  };
  const auto normalise = [&](std::string_view part) {
    const bool has_guards = options.guarded && part.find(kGuard) != std::string_view::npos;
    const std::string plain = has_guards ? without_guards(part) : std::string();
    if (has_guards) part = plain;
    const std::string composed = model.nfc ? nfc(part) : std::string();
    cut_at_added_tokens(model.added, model.added_by_first_byte[1], options.special_tokens_in_text && !has_guards,
                        model.nfc ? std::string_view(composed) : part, merge, take);
  };
  cut_at_added_tokens(model.added, model.added_by_first_byte[0], options.special_tokens_in_text, text, normalise, take);
  if (options.add_special_tokens) ids.insert(ids.end(), model.suffix.begin(), model.suffix.end());
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  encode(text, options, ids);
  return ids;
}

std::string Tokenizer::guard_special_tokens(std::string_view text) const {
  std::string guarded;
  for (std::size_t at = 0; at < text.size();) {
    bool opens = false;
    for (const auto& lists : model_->added_by_first_byte) {
      for (const std::size_t i : lists[static_cast<unsigned char>(text[at])]) {
        const AddedToken& token = model_->added[i];
        opens |= token.special && text.compare(at, token.content.size(), token.content) == 0;
      }
    }
    const std::size_t bytes = std::max<std::size_t>(1, utf8_sequence_length(text.substr(at)));
    guarded += text.substr(at, bytes);
    if (opens) guarded += kGuard;
    at += bytes;
  }
  return guarded;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const TokenId id : ids) {
    MAGISTER_CHECK(id >= 0 && id < vocab_size(), ExitCode::kData,
                   "token id {} stands outside the vocabulary of {} (it has no "
                   "text); use the tokenizer that made the ids",
                   id, vocab_size());
    if (skip_special_tokens && model_->special_id[static_cast<std::size_t>(id)]) continue;
    bytes += model_->bytes_of_id[static_cast<std::size_t>(id)];
  }
  // Bytes that are no UTF-8 become U+FFFD, one for each maximal ill-formed part, as the reference's lossy decoding does.
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t good = find_invalid_utf8(rest);
    text += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) break;
    std::size_t bad = 1;
    const auto first = static_cast<unsigned char>(rest[0]);
    const std::size_t wanted = first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
    while (first < 0xF5 && bad < wanted && bad < rest.size()) {
      // As long as the bytes could still become a character.
      std::string start(rest.substr(0, bad + 1));
      const auto second = static_cast<unsigned char>(rest[1]);
      const bool second_fits = (second & 0xC0) == 0x80 && !(first == 0xE0 && second < 0xA0) &&
                               !(first == 0xED && second > 0x9F) && !(first == 0xF0 && second < 0x90) &&
                               !(first == 0xF4 && second > 0x8F);
      if (!second_fits || (static_cast<unsigned char>(start.back()) & 0xC0) != 0x80) break;
      ++bad;
    }
    text += "\xEF\xBF\xBD";
    rest.remove_prefix(bad);
  }
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const { return model_->bytes_of_id[static_cast<std::size_t>(id)]; }
bool Tokenizer::is_special(TokenId id) const { return model_->special_id[static_cast<std::size_t>(id)]; }

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(model_->bytes_of_id.size()); }
const std::string& Tokenizer::sha256() const { return model_->sha256; }

TokenId Tokenizer::token_to_id(std::string_view token) const {
  const auto found = model_->id_of_text.find(std::string(token));
  return found == model_->id_of_text.end() ? -1 : found->second;
}

}  // namespace magister
