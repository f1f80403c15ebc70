// Reads a tokenizer from a SentencePiece model (tokenizer.model, spiece.model): BPE, Unigram and characters.
// Source: google/sentencepiece sentencepiece_model.proto, normalizer.cc, bpe_model.cc, unigram_model.cc, char_model.cc,
// sentencepiece_processor.cc.
#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "text/added_vocabulary.h"
#include "text/bpe.h"
#include "text/named_tokens.h"
#include "text/protobuf.h"
#include "text/score_bpe.h"
#include "text/tokenizer_model.h"
#include "text/unigram.h"

namespace magister {
namespace {

enum class PieceType : std::uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  std::uint64_t model_type = 1;  // 1 Unigram, 2 BPE, 3 words, 4 characters
  bool byte_fallback = false, has_denormalizer = false;
  std::string unknown_surface = " \xE2\x81\x87 ";
  SentencePieceRules normal;
};

SentencePiece read_piece(std::string_view bytes, const std::string& source) {
  SentencePiece piece;
  for (ProtobufReader reader(bytes, source); reader.next();) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.real();
    if (reader.field() == 3) piece.type = static_cast<PieceType>(reader.number());
  }
  MAGISTER_CHECK(piece.type >= PieceType::kNormal && piece.type <= PieceType::kByte, ExitCode::kData,
                 "{}: a piece has the type {} (types are 1 to 6); fetch the file again", source,
                 static_cast<std::uint64_t>(piece.type));
  MAGISTER_CHECK(!piece.text.empty() && find_invalid_utf8(piece.text) == piece.text.size(), ExitCode::kData,
                 "{}: a piece's text is empty or not UTF-8 (the model is damaged); fetch the file again", source);
  MAGISTER_CHECK(std::isfinite(piece.score), ExitCode::kData,
                 "{}: the score of \"{}\" is no number (the best piece would be unknown); fetch the file again", source,
                 printable(piece.text));
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& source, SentencePieceModel& model) {
  for (ProtobufReader reader(bytes, source); reader.next();) {
    if (reader.field() == 3) model.model_type = reader.number();
    if (reader.field() == 24) model.normal.whitespace_as_suffix = reader.flag();
    if (reader.field() == 35) model.byte_fallback = reader.flag();
    if (reader.field() == 44) model.unknown_surface = reader.bytes();
  }
}

void read_normalizer(std::string_view bytes, const std::string& source, SentencePieceModel& model) {
  for (ProtobufReader reader(bytes, source); reader.next();) {
    if (reader.field() == 2) model.normal.charsmap = reader.bytes();
    if (reader.field() == 3) model.normal.add_dummy_prefix = reader.flag();
    if (reader.field() == 4) model.normal.remove_extra_whitespaces = reader.flag();
    if (reader.field() == 5) model.normal.escape_whitespaces = reader.flag();
  }
}

SentencePieceModel read_model(std::string_view bytes, const std::string& source) {
  SentencePieceModel model;
  for (ProtobufReader reader(bytes, source); reader.next();) {
    if (reader.field() == 1) model.pieces.push_back(read_piece(reader.bytes(), source));
    if (reader.field() == 2) read_trainer(reader.bytes(), source, model);
    if (reader.field() == 3) read_normalizer(reader.bytes(), source, model);
    if (reader.field() == 5) {
      for (ProtobufReader inner(reader.bytes(), source); inner.next();)
        model.has_denormalizer |= inner.field() == 2 && !inner.bytes().empty();
    }
  }
  MAGISTER_CHECK(!model.pieces.empty(), ExitCode::kData,
                 "{}: has no pieces (nothing can be encoded); fetch the file again", source);
  MAGISTER_CHECK(
      model.model_type == 1 || model.model_type == 2 || model.model_type == 4, ExitCode::kData,
      "{}: its model type is {} (1, Unigram, 2, BPE, and 4, characters, are read here); use a supported tokenizer",
      source, model.model_type);
  MAGISTER_CHECK(
      !model.has_denormalizer, ExitCode::kData,
      "{}: has a denormalizer, which is not known here (texts would be decoded differently); use a supported tokenizer",
      source);
  return model;
}

// Decodes as SentencePiece does: each byte that belongs to no character becomes one U+FFFD, and the unknown token
// becomes its surface.
class SentencePieceDecoder final : public DecodeStep {
 public:
  SentencePieceDecoder(std::string unknown, std::string surface, bool strip_one, bool strip_all, bool bytes)
      : unknown_(std::move(unknown)),
        surface_(std::move(surface)),
        strip_one_(strip_one),
        strip_all_(strip_all),
        bytes_(bytes) {}

  void apply(std::vector<std::string>& tokens) const override {
    std::string text, bytes;
    bool stripped = false;
    for (const std::string& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush(bytes, text);
      std::string_view rest = token;
      const bool at_start = text.empty() && !stripped;
      if (at_start && (strip_one_ || strip_all_) && rest.starts_with(kSpace)) {
        rest.remove_prefix(kSpace.size());
        stripped = !strip_all_;
      }
      text += token == unknown_ ? surface_ : spaced(rest);
    }
    flush(bytes, text);
    tokens.clear();
    tokens.push_back(std::move(text));
  }
  std::string inside(std::string token) const override {
    const int byte = byte_of(token);
    if (byte >= 0) return std::string(1, static_cast<char>(byte));
    return token == unknown_ ? surface_ : spaced(token);
  }

 private:
  static constexpr std::string_view kSpace = "\xE2\x96\x81";
  int byte_of(std::string_view token) const {
    if (!bytes_ || token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    const int high = digit(token[3]), low = digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  static std::string spaced(std::string_view text) {
    std::string out;
    for (std::size_t at = 0;;) {
      const std::size_t found = text.find(kSpace, at);
      out += text.substr(at, found - at);
      if (found == std::string_view::npos) return out;
      out += ' ';
      at = found + kSpace.size();
    }
  }
  static void flush(std::string& bytes, std::string& text) {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = utf8_sequence_length(std::string_view(bytes).substr(at));
      text += length == 0 ? "\xEF\xBF\xBD" : bytes.substr(at, length);
      at += std::max<std::size_t>(length, 1);
    }
    bytes.clear();
  }

  std::string unknown_, surface_;
  bool strip_one_, strip_all_, bytes_;
};

void build_vocabulary(const SentencePieceModel& file, const std::array<TokenId, 256>& byte_ids, TokenId unknown,
                      Tokenizer::Model& model) {
  // A character model is BPE without merges.
  const bool characters = file.model_type == 4, bpe = file.model_type == 2 || characters;
  std::vector<std::pair<std::string, TokenId>> tokens, frozen;
  std::vector<float> scores;
  std::vector<UnigramToken> entries;
  float lowest = 0;
  bool any = false;
  for (const SentencePiece& piece : file.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    lowest = any ? std::min(lowest, piece.score) : piece.score;
    any = true;
  }
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const SentencePiece& piece = file.pieces[i];
    const auto id = static_cast<TokenId>(i);
    MAGISTER_CHECK(!bpe || piece.type != PieceType::kUnused, ExitCode::kData,
                   "{}: \"{}\" is an unused piece of a BPE model (which is not known here); use a supported tokenizer",
                   model.source, printable(piece.text));
    MAGISTER_CHECK(
        !characters || piece.type != PieceType::kNormal || utf8_sequence_length(piece.text) == piece.text.size(),
        ExitCode::kData,
        "{}: \"{}\" is a piece of a model of characters, but not one (it is unknown when it is used); use a "
        "supported tokenizer",
        model.source, printable(piece.text));
    const bool user = piece.type == PieceType::kUserDefined;
    if (user) frozen.emplace_back(piece.text, id);
    if (piece.type != PieceType::kNormal && !user) continue;
    tokens.emplace_back(piece.text, id);
    scores.push_back(piece.score);
    // A user-defined piece has no cost, and a longer one is preferred (SentencePiece since 0.2.2; before, it cost 0.1).
    const auto preferred = static_cast<float>(0.1 * (static_cast<double>(piece.text.size()) - 1));
    entries.push_back({piece.text, id, user ? preferred : piece.score});
  }
  if (bpe) {
    ScoreBpe::Rules rules;
    rules.byte_ids = byte_ids;
    rules.unknown = unknown;
    rules.frozen = std::move(frozen);
    model.words = std::make_unique<ScoreBpe>(rank_by_score(tokens, scores), std::move(rules));
    return;
  }
  Unigram::Rules rules;
  rules.unknown = unknown;
  rules.unknown_score = lowest - 10.0f;
  rules.single_precision = true;
  rules.byte_fallback = file.byte_fallback;
  rules.look_up_fused = false;
  rules.byte_ids = byte_ids;
  model.words = std::make_unique<Unigram>(entries, rules, model.source);
}

void refuse_other_pieces(const NamedTokens& named, const Tokenizer::Model& model) {
  std::unordered_map<TokenId, std::string_view> piece_of;
  for (const auto& [text, id] : model.vocab) piece_of[id] = text;
  for (const auto& [id, text] : named.by_id) {
    const auto piece = piece_of.find(id);
    MAGISTER_CHECK(
        piece == piece_of.end() || piece->second == text || model.vocab.contains(text), ExitCode::kData,
        "{}: token {} is \"{}\", and \"{}\" by {} (transformers' classes do not agree on what it is then); save the "
        "tokenizer as tokenizer.json with the class that it is of",
        model.source, id, printable(piece->second), printable(text), named.ids_are_of);
  }
}

// Adds the tokens that the files next to the model name, after the pieces. If one is new, texts are read as
// transformers' Llama class reads them: the parts after a token get no space of their own, unless the class's `legacy`
// asks for one. Returns what changes the identity; empty: nothing.
std::string add_named_tokens(const TokenizerConfigFiles& files, SentencePieceModel& file, Tokenizer::Model& model) {
  NamedTokens named = read_named_tokens(files, nullptr);
  refuse_other_pieces(named, model);
  for (AddedToken& token : named.added) token.normalized = false;  // that class has no normalizer
  AddedVocabulary added(model.vocab, model.source);
  added.add(model.added);
  model.own_size = added.size();
  const bool changed = added.add(named.added);
  model.added = added.list();
  model.special_tokens = std::move(named.special);
  if (!changed) return "";
  if (added.size() == model.own_size) return identity_of(model.added);
  SentencePieceRules& rules = file.normal;
  MAGISTER_CHECK(named.tokenizer_class == "LlamaTokenizer" && file.model_type == 2 && rules.charsmap.empty() &&
                     !rules.remove_extra_whitespaces && rules.escape_whitespaces && rules.add_dummy_prefix,
                 ExitCode::kData,
                 "{}: the files next to it name \"{}\", which it does not have (how such tokens split a text is known "
                 "only for LlamaTokenizer's models); save the tokenizer as tokenizer.json",
                 model.source, printable(model.added.back().content));
  rules.add_dummy_prefix = false;
  model.blank = named.legacy ? Tokenizer::Model::Blank::kAlways : Tokenizer::Model::Blank::kFirst;
  return identity_of(model.added) + fmt::format("\nlegacy {}", named.legacy);
}

}  // namespace

Tokenizer Tokenizer::from_sentencepiece(std::string_view bytes, const std::string& path, const SentencePieceEnds& ends,
                                        const TokenizerConfigFiles& files) {
  auto model = std::make_unique<Model>();
  model->source = printable(path);
  SentencePieceModel file = read_model(bytes, model->source);
  std::array<TokenId, 256> byte_ids{};
  byte_ids.fill(-1);
  TokenId unknown = -1, bos = -1, eos = -1;
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const SentencePiece& piece = file.pieces[i];
    const auto id = static_cast<TokenId>(i);
    MAGISTER_CHECK(model->vocab.emplace(piece.text, id).second, ExitCode::kData,
                   "{}: the piece \"{}\" is there twice, as {} and {} (it would have two ids); fetch the file again",
                   model->source, printable(piece.text), model->vocab.at(piece.text), i);
    if (piece.type == PieceType::kUnknown) {
      MAGISTER_CHECK(unknown < 0, ExitCode::kData,
                     "{}: pieces {} and {} are both the unknown one (a model has only one); fetch the file again",
                     model->source, unknown, id);
      unknown = id;
    }
    if (piece.type == PieceType::kUserDefined) file.normal.user_defined.push_back(piece.text);
    if (piece.type != PieceType::kControl) continue;
    if (piece.text == "<s>" || piece.text == "<bos>") bos = id;
    if (piece.text == "</s>" || piece.text == "<eos>") eos = id;
    AddedToken token;
    token.id = id;
    token.content = piece.text;
    token.special = true;
    model->added.push_back(std::move(token));
  }
  MAGISTER_CHECK(unknown >= 0, ExitCode::kData,
                 "{}: has no unknown piece (SentencePiece demands one); fetch the file again", model->source);
  for (std::size_t byte = 0; file.byte_fallback && byte < 256; ++byte) {
    const auto found = model->vocab.find(byte_token(static_cast<unsigned char>(byte)));
    MAGISTER_CHECK(
        found != model->vocab.end() && file.pieces[static_cast<std::size_t>(found->second)].type == PieceType::kByte,
        ExitCode::kData, "{}: has no byte piece for {} (its characters could not be encoded); fetch the file again",
        model->source, byte);
    byte_ids[byte] = found->second;
  }
  build_vocabulary(file, byte_ids, unknown, *model);
  const std::string unknown_text = file.pieces[static_cast<std::size_t>(unknown)].text;
  model->decoder =
      std::make_unique<SentencePieceDecoder>(unknown_text, file.unknown_surface, file.normal.add_dummy_prefix,
                                             file.normal.remove_extra_whitespaces, file.byte_fallback);
  if (ends.add_bos.value_or(file.model_type == 2) && bos >= 0) model->prefix.push_back(bos);
  if (ends.add_eos.value_or(file.model_type == 1) && eos >= 0) model->suffix.push_back(eos);
  const std::string changes = add_named_tokens(files, file, *model);
  model->normalizer = make_sentencepiece_normalizer(std::move(file.normal), model->source);
  model->sha256 =
      sha256_hex(std::string(bytes) + fmt::format("\n{} {}", model->prefix.size(), model->suffix.size()) + changes);
  model->finish();
  return Tokenizer(std::move(model));
}

}  // namespace magister
