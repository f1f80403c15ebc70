// Hashes normalizer and pre-tokenizer steps as written, without keys that have no effect, and the model's tokens by
// their ids.
// Source: huggingface/tokenizers, the defaults of each component's serialisation.
#include "text/tokenizer_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "magister/core/sha256.h"

namespace magister {
namespace {

using nlohmann::json;

// Optional keys of a step, by its type, with their defaults. Null: the key has no effect on ids.
const json& step_defaults(const std::string& type) {
  static const std::map<std::string, json> kDefaults = {
      {"ByteLevel", {{"add_prefix_space", true}, {"use_regex", true}, {"trim_offsets", nullptr}}},
      {"BertNormalizer", {{"clean_text", true}, {"handle_chinese_chars", true}, {"lowercase", true}}},
      {"Strip", {{"strip_left", true}, {"strip_right", true}}},
      {"Metaspace",
       {{"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}, {"split", true}, {"str_rep", nullptr}}},
      {"Digits", {{"individual_digits", false}}},
      {"Punctuation", {{"behavior", "Isolated"}}},
      {"FixedLength", {{"length", 5}}},
      {"Split", {{"invert", false}}}};
  static const json kNone = json::object();
  const auto found = kDefaults.find(type);
  return found == kDefaults.end() ? kNone : found->second;
}

json plain_step(json step) {
  const std::string type = step.value("type", std::string());
  if (type == "Metaspace" && step.contains("add_prefix_space")) {  // older files have this instead of a scheme
    if (step["add_prefix_space"] == false) step["prepend_scheme"] = "never";
    step.erase("add_prefix_space");
  }
  if (type == "BertNormalizer" && step.value("strip_accents", json()) == step.value("lowercase", json(true)))
    step.erase("strip_accents");
  if (step.contains("pattern") && step["pattern"].is_string()) step["pattern"] = {{"String", step["pattern"]}};
  const json& defaults = step_defaults(type);
  for (auto entry = step.begin(); entry != step.end();) {
    const auto usual = defaults.find(entry.key());
    const bool says_nothing = entry->is_null() || (usual != defaults.end() && (usual->is_null() || *usual == *entry));
    entry = says_nothing ? step.erase(entry) : std::next(entry);
  }
  return step;
}

// Appends the steps of a normalizer or pre-tokenizer in order, however they are nested, without those that do nothing.
void add_steps(const json& step, json& steps) {
  if (!step.is_object()) return;
  for (const char* const list : {"normalizers", "pretokenizers"}) {
    if (!step.contains(list)) continue;
    for (const json& inner : step[list]) add_steps(inner, steps);
    return;
  }
  json plain = plain_step(step);
  const std::string type = plain.value("type", std::string());
  const bool does_nothing = (type == "Prepend" && plain.value("prepend", std::string()).empty()) ||
                            (type == "Precompiled" && !plain.contains("precompiled_charsmap"));
  if (!does_nothing) steps.push_back(std::move(plain));
}

json steps_of(const json& content, const char* key) {
  json steps = json::array();
  if (content.contains(key)) add_steps(content[key], steps);
  return steps;
}

void hash_text(Sha256& hash, std::string_view text) {
  hash.update(std::to_string(text.size()) + " ");
  hash.update(text);
}

// The keys of a model other than its tokens and merges. A value that is null, empty, false, zero or the default counts
// as absent, except for unk_id. Old files name no type: the keys decide.
json model_keys(const json& model, const Vocabulary& vocab) {
  const char* const implied = model.contains("merges")                     ? "BPE"
                              : model.contains("max_input_chars_per_word") ? "WordPiece"
                              : model.contains("unk_id")                   ? "Unigram"
                                                                           : "WordLevel";
  json keys = {{"type", model.value("type", std::string(implied))}};
  const bool is_wordpiece = keys["type"] == "WordPiece";
  for (const auto& [key, value] : model.items()) {
    if (key == "vocab" || key == "merges" || key == "type") continue;
    const bool is_default = is_wordpiece && ((key == "continuing_subword_prefix" && value == "##") ||
                                             (key == "max_input_chars_per_word" && value == 100));
    const bool says_nothing = is_default || value.is_null() || value == false || value == "" || value == 0;
    if (!says_nothing || key == "unk_id") keys[key] = value;
  }
  if (keys.contains("unk_token") && !vocab.contains(keys["unk_token"].get<std::string>())) keys.erase("unk_token");
  return keys;
}

void put_tokens(Sha256& hash, const Tokenizer::Model& model) {
  std::vector<std::pair<TokenId, std::string_view>> tokens;
  for (const auto& [text, id] : model.vocab) tokens.emplace_back(id, text);
  for (const AddedToken& token : model.added) tokens.emplace_back(token.id, token.content);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());  // an added token may be in both lists
  for (const auto& [id, text] : tokens) {
    hash.update(std::to_string(id) + " ");
    hash_text(hash, text);
  }
  std::vector<const AddedToken*> added;
  for (const AddedToken& token : model.added) added.push_back(&token);
  std::sort(added.begin(), added.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  for (const AddedToken* const token : added) {
    hash.update("\nadded " + std::to_string(token->id) + " ");
    for (const bool flag : {token->single_word, token->lstrip, token->rstrip, token->normalized, token->special})
      hash.update(flag ? "1" : "0");
  }
}

void put_model(Sha256& hash, const json& model, const Tokenizer::Model& read) {
  hash_text(hash, model_keys(model, read.vocab).dump());
  if (model.contains("merges")) {
    for (const json& merge : model["merges"]) {
      const bool is_pair = merge.is_array();
      hash_text(hash,
                is_pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>() : merge.get<std::string>());
    }
  }
  if (!model["vocab"].is_array()) return;
  // Unigram: the tokens' scores in the order of their ids. The package tokenizers sometimes reads a decimal number off
  // by the last bit, and writes what it has read. As f32, which they once were, scores stay the same.
  for (const json& entry : model["vocab"]) hash_text(hash, fmt::format("{}", entry[1].get<float>()));
}

}  // namespace

std::string sha256_of_rules(const json& content, const Tokenizer::Model& model, std::optional<bool> add_prefix_space) {
  json pre_tokenizer = steps_of(content, "pre_tokenizer");
  for (json& step : pre_tokenizer) {
    if (!add_prefix_space || step.value("type", std::string()) != "ByteLevel") continue;
    step.erase("add_prefix_space");
    if (!*add_prefix_space) step["add_prefix_space"] = false;
  }
  Sha256 hash;
  hash.update("tokenizer.json\n");
  hash_text(hash, steps_of(content, "normalizer").dump());
  hash_text(hash, pre_tokenizer.dump());
  put_model(hash, content["model"], model);
  put_tokens(hash, model);
  return hash.hex();
}

}  // namespace magister
