// Encoding: added tokens are cut out of the raw text, the rest is normalised, cut at normalised added tokens, split
// into pieces and merged.
// Source: huggingface/tokenizers tokenizer/added_vocabulary (order of the steps, leftmost longest match).
#include "magister/text/tokenizer.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "text/bpe.h"
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
  for (const auto& [text, id] : vocab) see(id, text);
  for (AddedToken& token : added) {
    see(token.id, token.content);
    token.searched = token.content;
    if (token.normalized && normalizer) normalizer->apply(token.searched);
  }
  MAGISTER_CHECK(highest >= 0, ExitCode::kData,
                 "{}: the vocabulary is empty (nothing can be encoded); fetch the file again", source);
  for (const auto& ids : {prefix, suffix}) {
    for (const TokenId id : ids) {
      MAGISTER_CHECK(id >= 0 && id <= highest, ExitCode::kData,
                     "{}: the id {} is to be added to each text, outside the vocabulary of {} (the model has no such "
                     "token); fetch the file again",
                     source, id, highest + 1);
    }
  }
  text_of_id.assign(static_cast<std::size_t>(highest) + 1, {});
  place_tokens();
  place_added();
}

void Tokenizer::Model::place_tokens() {
  bytes_of_id.assign(text_of_id.size(), {});
  special_id.assign(text_of_id.size(), false);
  known_id.assign(text_of_id.size(), false);
  for (const auto& [text, id] : vocab) {
    const auto at = static_cast<std::size_t>(id);
    MAGISTER_CHECK(!known_id[at], ExitCode::kData,
                   "{}: id {} belongs to two tokens, one is \"{}\" (texts "
                   "could not be decoded); fetch the file again",
                   source, id, printable(text));
    known_id[at] = true;
    text_of_id[at] = text;
    id_of_text[text] = id;
  }
  std::vector<bool> literal(text_of_id.size());
  for (const AddedToken& token : added) {
    const auto at = static_cast<std::size_t>(token.id);
    known_id[at] = true;
    literal[at] = token.literal;
    text_of_id[at] = token.searched;  // the reference writes the normalised text
    special_id[at] = token.special;
    id_of_text[token.content] = token.id;
  }
  for (std::size_t id = 0; id < text_of_id.size(); ++id) {
    std::string& bytes = bytes_of_id[id];
    if (decoding == Decoding::kSteps) {
      bytes = decoder ? decoder->inside(text_of_id[id]) : text_of_id[id];
    } else if (tokens_are_bytes || literal[id] || !bytes_of_token(text_of_id[id], bytes)) {
      bytes = text_of_id[id];
    }
  }
}

void Tokenizer::Model::place_added() {
  for (auto& lists : added_by_first_byte) lists.assign(256, {});
  for (std::size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    if (token.searched.empty()) continue;
    added_by_first_byte[token.normalized ? 1 : 0][static_cast<unsigned char>(token.searched[0])].push_back(i);
  }
  for (auto& lists : added_by_first_byte) {
    for (auto& list : lists) {
      std::stable_sort(list.begin(), list.end(), [&](std::size_t a, std::size_t b) {
        return added[a].searched.size() > added[b].searched.size();
      });
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

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581, SentencePiece's visible space
constexpr std::string_view kGuard = "\xEF\xB7\x90";  // U+FDD0: a noncharacter, so no text contains it

// Calls rest(text) for the text between added tokens and token(index) for each added token.
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
      if (text.compare(at, candidate.searched.size(), candidate.searched) != 0) continue;
      found = &candidate;
      index = i;
      break;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    // Like the reference, this does not try a shorter token if the longest is not allowed here.
    if ((found->special && !take_special) ||
        (found->single_word && touches_word(text, at, at + found->searched.size()))) {
      at += found->searched.size();
      continue;
    }
    std::size_t from = at, to = at + found->searched.size();
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

void encode_pieces(const Tokenizer::Model& model, const Piece& text, Pieces& pieces, std::vector<TokenId>& ids) {
  if (model.pre_tokenizer) {
    model.pre_tokenizer->split(text, pieces);
  } else {
    pieces.list.push_back(text);
  }
  std::string written;
  for (const Piece& piece : pieces.list) {
    if (!model.pieces_in_stand_ins) {
      model.words->encode(piece.text, ids);
      continue;
    }
    written.clear();
    for (const char c : piece.text) written += byte_characters()[static_cast<unsigned char>(c)];
    model.words->encode(written, ids);
  }
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
  Pieces pieces;
  const auto normalise = [&](std::string_view part) {
    const bool has_guards = options.guarded && part.find(kGuard) != std::string_view::npos;
    const bool at_start = part.data() == text.data();
    std::string normal;
    if (has_guards) part = normal = Tokenizer::without_guards(part);
    if (model.normalizer) {
      if (!has_guards) normal = part;
      model.normalizer->apply(normal);
      part = normal;
    }
    using Blank = Model::Blank;
    if ((model.blank == Blank::kAlways || (model.blank == Blank::kFirst && at_start)) && !part.starts_with(kBlank))
      part = normal = std::string(kBlank) + std::string(part);
    const auto merge = [&](std::string_view rest) {
      pieces.clear();
      encode_pieces(model, {rest, at_start && rest.data() == part.data()}, pieces, ids);
    };
    cut_at_added_tokens(model.added, model.added_by_first_byte[1], options.special_tokens_in_text && !has_guards, part,
                        merge, take);
  };
  cut_at_added_tokens(model.added, model.added_by_first_byte[0], options.special_tokens_in_text, text, normalise, take);
  if (options.add_special_tokens) ids.insert(ids.end(), model.suffix.begin(), model.suffix.end());
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  encode(text, options, ids);
  return ids;
}

std::string Tokenizer::without_guards(std::string_view text) {
  std::string plain;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(kGuard, begin), text.size());
    plain += text.substr(begin, end - begin);
    begin = end + kGuard.size();
  }
  return plain;
}

std::string Tokenizer::guard_special_tokens(std::string_view text) const {
  std::string guarded;
  for (std::size_t at = 0; at < text.size();) {
    bool opens = false;
    for (const auto& lists : model_->added_by_first_byte) {
      for (const std::size_t i : lists[static_cast<unsigned char>(text[at])]) {
        const AddedToken& token = model_->added[i];
        opens |= token.special && text.compare(at, token.searched.size(), token.searched) == 0;
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
  const Model& model = *model_;
  std::string bytes;
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (!model.has(id) || (skip_special_tokens && model.special_id[at])) continue;
    if (model.decoding == Model::Decoding::kBytes) {
      bytes += model.bytes_of_id[at];
    } else {
      tokens.push_back(model.text_of_id[at]);
    }
  }
  if (model.decoding == Model::Decoding::kBytes) return replace_invalid_utf8(bytes);
  if (model.decoder) model.decoder->apply(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !model.decoder) bytes += ' ';
    bytes += tokens[i];
  }
  return bytes;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return model_->has(id) ? model_->bytes_of_id[static_cast<std::size_t>(id)] : std::string_view();
}
bool Tokenizer::is_special(TokenId id) const {
  return model_->has(id) && model_->special_id[static_cast<std::size_t>(id)];
}

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(model_->bytes_of_id.size()); }
std::int64_t Tokenizer::own_size() const { return model_->own_size < 0 ? vocab_size() : model_->own_size; }
const std::vector<std::pair<std::string, std::string>>& Tokenizer::special_tokens() const {
  return model_->special_tokens;
}
const std::string& Tokenizer::sha256() const { return model_->sha256; }
const std::string& Tokenizer::rules_sha256() const {
  return model_->rules_sha256.empty() ? model_->sha256 : model_->rules_sha256;
}

TokenId Tokenizer::token_to_id(std::string_view token) const {
  const auto found = model_->id_of_text.find(std::string(token));
  return found == model_->id_of_text.end() ? -1 : found->second;
}

}  // namespace magister
