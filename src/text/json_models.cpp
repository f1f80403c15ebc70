// BPE, Unigram, WordPiece and WordLevel of tokenizer.json.
// Source: huggingface/tokenizers models, the serialisation of each, with its defaults.
#include <algorithm>

#include "text/bpe.h"
#include "text/json_parts.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace magister {
namespace {

std::pair<std::string, std::string> read_merge(const JsonNode& node) {
  if (node.value().is_array()) {
    node.need(node.value().size() == 2, "pair");
    return {node.list()[0].text(), node.list()[1].text()};
  }
  const std::string merge = node.text();
  const std::size_t space = merge.find(' ');
  node.need(space != std::string::npos && space > 0 && space + 1 < merge.size(), "pair \"left right\"");
  return {merge.substr(0, space), merge.substr(space + 1)};
}

Vocabulary read_vocab(const JsonNode& entries) {
  Vocabulary vocab;
  entries.need(entries.value().is_object(), "object");
  vocab.reserve(entries.value().size());
  for (const auto& [token, id] : entries.value().items()) vocab.emplace(token, entries.at(token).id());
  if (vocab.empty()) entries.refuse("is empty (nothing can be encoded); fetch the file again");
  return vocab;
}

std::string optional_text(const JsonNode& node, const char* key) { return node.has(key) ? node.at(key).text() : ""; }

// The id of the token that `key` names; -1: null, -2: not in the vocabulary.
TokenId read_unknown(const JsonNode& node, const char* key, const Vocabulary& vocab) {
  if (!node.has(key)) return -1;
  const std::string token = node.at(key).text();
  const auto found = vocab.find(token);
  return found == vocab.end() ? -2 : found->second;
}

void read_bpe(const JsonNode& node, bool byte_level, Tokenizer::Model& model) {
  node.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
             "ignore_merges", "vocab", "merges"});
  if (node.has("dropout") && node.at("dropout").number() != 0)
    node.at("dropout").refuse("is set (merges would be left out at random); use a supported tokenizer");
  model.vocab = read_vocab(node.at("vocab"));
  BpeRules rules;
  rules.prefix = optional_text(node, "continuing_subword_prefix");
  rules.suffix = optional_text(node, "end_of_word_suffix");
  rules.fuse_unknown = node.flag("fuse_unk", false);
  rules.byte_fallback = node.flag("byte_fallback", false);
  rules.ignore_merges = node.flag("ignore_merges", false);
  rules.unknown = read_unknown(node, "unk_token", model.vocab);
  if (rules.unknown == -2) {
    // The unknown token is never needed if every byte has its own token, as in byte-level vocabularies.
    const bool needed =
        !byte_level || std::any_of(byte_characters().begin(), byte_characters().end(),
                                   [&](const std::string& byte) { return !model.vocab.contains(byte); });
    if (needed && !node.at("unk_token").text().empty())
      node.at("unk_token")
          .refuse("\"{}\" is not in the vocabulary (what is unknown has no token); fetch the file again",
                  printable(node.at("unk_token").text()));
    rules.unknown = -1;
  }
  // These rules work on characters, so a byte-level piece is written in byte characters first.
  rules.reads_bytes = byte_level && rules.prefix.empty() && rules.suffix.empty() && !rules.byte_fallback;
  model.pieces_in_stand_ins = byte_level && !rules.reads_bytes;
  std::vector<std::pair<std::string, std::string>> merges;
  for (const JsonNode& merge : node.at("merges").list()) merges.push_back(read_merge(merge));
  model.words = std::make_unique<Bpe>(model.vocab, merges, rules, node.source());
}

void read_unigram(const JsonNode& node, Tokenizer::Model& model) {
  node.only({"unk_id", "vocab", "byte_fallback"});
  std::vector<UnigramToken> tokens;
  double lowest = 0;
  for (const JsonNode& entry : node.at("vocab").list()) {
    entry.need(entry.value().is_array() && entry.value().size() == 2, "pair [text, score]");
    const std::vector<JsonNode> pair = entry.list();
    UnigramToken token{pair[0].text(), static_cast<TokenId>(tokens.size()), pair[1].number()};
    lowest = tokens.empty() ? token.score : std::min(lowest, token.score);
    if (!model.vocab.emplace(token.text, token.id).second)
      entry.refuse("\"{}\" is there twice (it would have two ids); fetch the file again", printable(token.text));
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) node.at("vocab").refuse("is empty (nothing can be encoded); fetch the file again");
  Unigram::Rules rules;
  if (node.has("unk_id")) {
    rules.unknown = node.at("unk_id").id();
    if (static_cast<std::size_t>(rules.unknown) >= tokens.size())
      node.at("unk_id").refuse("is {} of {} tokens (there is no such token); fetch the file again", rules.unknown,
                               tokens.size());
  }
  rules.unknown_score = lowest - 10;
  rules.byte_fallback = node.flag("byte_fallback", false);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = model.vocab.find(byte_token(static_cast<unsigned char>(byte)));
    rules.byte_ids[byte] = found == model.vocab.end() ? -1 : found->second;
  }
  model.words = std::make_unique<Unigram>(tokens, rules, node.source());
}

void read_wordpiece(const JsonNode& node, Tokenizer::Model& model) {
  node.only({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  model.vocab = read_vocab(node.at("vocab"));
  WordPiece::Rules rules;
  if (node.has("continuing_subword_prefix")) rules.prefix = node.at("continuing_subword_prefix").text();
  if (node.has("max_input_chars_per_word")) rules.max_characters = node.at("max_input_chars_per_word").size(1u << 30);
  rules.unknown = read_unknown(node, "unk_token", model.vocab);
  if (rules.unknown < 0)
    node.refuse("unk_token is not in the vocabulary (unknown words would have no token); fetch the file again");
  model.words = std::make_unique<WordPiece>(model.vocab, rules);
}

void read_wordlevel(const JsonNode& node, Tokenizer::Model& model) {
  node.only({"unk_token", "vocab"});
  model.vocab = read_vocab(node.at("vocab"));
  const TokenId unknown = std::max(read_unknown(node, "unk_token", model.vocab), -1);
  model.words = std::make_unique<WordLevel>(model.vocab, unknown, node.source());
}

}  // namespace

void read_json_model(const JsonNode& node, bool byte_level, Tokenizer::Model& model) {
  // Old files name no type; as in the reference, the keys decide.
  const std::string type = node.has("type")                       ? node.type()
                           : node.has("merges")                   ? "BPE"
                           : node.has("max_input_chars_per_word") ? "WordPiece"
                           : node.has("unk_id")                   ? "Unigram"
                                                                  : "WordLevel";
  model.pieces_in_stand_ins = byte_level;
  if (type == "BPE") return read_bpe(node, byte_level, model);
  if (type == "Unigram") return read_unigram(node, model);
  if (type == "WordPiece") return read_wordpiece(node, model);
  if (type == "WordLevel") return read_wordlevel(node, model);
  node.refuse("model \"{}\" is not known here (BPE, Unigram, WordPiece and WordLevel are); use a supported tokenizer",
              printable(type));
}

}  // namespace magister
