// Reads a tokenizer from tokenizer.json. Every component and every key that changes ids is read or refused by name.
// Source: huggingface/tokenizers serialisation of normalizers, pre_tokenizers, models, processors, decoders.
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "text/added_vocabulary.h"
#include "text/json_parts.h"
#include "text/named_tokens.h"
#include "text/tokenizer_rules.h"

namespace magister {

using nlohmann::json;

json parse_tokenizer_file(std::string_view text, const std::string& source) {
  constexpr int kMaxDepth = 32;
  const std::size_t bad = find_invalid_utf8(text);
  MAGISTER_CHECK(bad == text.size(), ExitCode::kData,
                 "{}: not valid UTF-8 at byte {} (it cannot be read); fetch the file again", source, bad);
  const auto look = [&](int depth, json::parse_event_t, json&) {
    MAGISTER_CHECK(depth <= kMaxDepth, ExitCode::kData,
                   "{}: nested deeper than {} (no tokenizer is); fetch the file again", source, kMaxDepth);
    return true;
  };
  try {
    return json::parse(text, look);
  } catch (const json::exception& error) {
    fail(ExitCode::kData, "{}: is not valid JSON ({}); fetch the file again", source, printable(error.what()));
  }
}

namespace {

AddedToken read_added_token(const JsonNode& node) {
  node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = node.at("id").id();
  token.content = node.at("content").text();
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

struct Affixes {
  std::vector<TokenId> prefix, suffix;
};

void read_template(const JsonNode& node, Affixes& affixes) {
  node.only({"single", "pair", "special_tokens"});
  bool after_text = false;
  for (const JsonNode& piece : node.at("single").list()) {
    piece.only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (after_text || piece.at("Sequence").at("id").text() != "A")
        piece.refuse("a template with more than one text (which is not known here); use a supported tokenizer");
      after_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").text();
    for (const JsonNode& id : node.at("special_tokens").at(name).at("ids").list()) {
      (after_text ? affixes.suffix : affixes.prefix).push_back(id.id());
    }
  }
  if (!after_text)
    node.at("single").refuse("has no place for the text (nothing would be encoded); fetch the file again");
}

// [CLS] goes before the text and [SEP] after it; each is a pair of text and id.
void read_bert(const JsonNode& node, Affixes& affixes) {
  node.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
  for (const char* key : {"cls", "sep"}) {
    const JsonNode pair = node.at(key);
    pair.need(pair.value().is_array() && pair.value().size() == 2, "pair [text, id]");
    (key[0] == 'c' ? affixes.prefix : affixes.suffix).push_back(pair.list()[1].id());
  }
}

void read_post_processor(const JsonNode& node, Affixes& affixes) {
  const std::string type = node.type();
  if (type == "ByteLevel") return node.only({"add_prefix_space", "trim_offsets", "use_regex"});  // changes only offsets
  if (type == "Sequence") {
    node.only({"processors"});
    for (const JsonNode& step : node.at("processors").list()) read_post_processor(step, affixes);
    return;
  }
  Affixes own;
  if (type == "TemplateProcessing") {
    read_template(node, own);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    read_bert(node, own);
  } else {
    node.refuse(
        "post-processor \"{}\" is not known here (TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and "
        "Sequence are); use a supported tokenizer",
        printable(type));
  }
  // A later step wraps the tokens of an earlier one.
  affixes.prefix.insert(affixes.prefix.begin(), own.prefix.begin(), own.prefix.end());
  affixes.suffix.insert(affixes.suffix.end(), own.suffix.begin(), own.suffix.end());
}

// Adds the file's own tokens, then those that the files next to it name. Returns what the latter change, as part of the
// tokenizer's identity; empty: nothing.
std::string read_added_tokens(const JsonNode& root, const NamedTokens& named, Tokenizer::Model& model) {
  std::vector<AddedToken> own;
  if (root.has("added_tokens")) {
    for (const JsonNode& node : root.at("added_tokens").list()) {
      AddedToken token = read_added_token(node);
      const auto known = model.vocab.find(token.content);
      if (known != model.vocab.end() && known->second != token.id)
        node.refuse("\"{}\" is {} here and {} in the vocabulary (which one is meant?); fetch the file again",
                    printable(token.content), token.id, known->second);
      own.push_back(std::move(token));
    }
  }
  AddedVocabulary added(model.vocab, model.source);
  added.add(own);
  model.own_size = added.size();
  const bool changed = added.add(named.added);
  model.added = added.list();
  return changed ? identity_of(model.added) : "";
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, const std::string& path,
                               const TokenizerConfigFiles& files) {
  const std::string source = printable(path);
  const json content = parse_tokenizer_file(tokenizer_json, source);
  const JsonNode root(content, "", source);
  // Truncation and padding are ignored: they are not part of the vocabulary, and max_length decides at run time.
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  auto model = std::make_unique<Model>();
  model->source = source;
  if (root.has("normalizer")) model->normalizer = read_json_normalizer(root.at("normalizer"));
  NamedTokens named = read_named_tokens(files, &content);
  JsonPreTokenizer pre_tokenizer;
  pre_tokenizer.add_prefix_space = named.add_prefix_space;
  if (root.has("pre_tokenizer")) read_json_pre_tokenizer(root.at("pre_tokenizer"), pre_tokenizer);
  if (!pre_tokenizer.steps.empty()) model->pre_tokenizer = make_sequence(std::move(pre_tokenizer.steps));
  if (root.has("decoder")) read_json_decoder(root.at("decoder"), *model);
  read_json_model(root.at("model"), pre_tokenizer.byte_level, *model);
  std::string changes = read_added_tokens(root, named, *model);
  if (pre_tokenizer.overruled) changes += fmt::format("\nadd_prefix_space {}", *named.add_prefix_space);
  Affixes affixes;
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), affixes);
  model->prefix = affixes.prefix;
  model->suffix = affixes.suffix;
  model->special_tokens = std::move(named.special);
  model->sha256 = changes.empty() ? sha256_hex(tokenizer_json) : sha256_hex(std::string(tokenizer_json) + changes);
  model->rules_sha256 = sha256_of_rules(content, *model, named.add_prefix_space);
  model->finish();
  return Tokenizer(std::move(model));
}

}  // namespace magister
