// A tokenizer from tokenizer.json. Every component and every key that changes ids is read or refused by name.
// Source: huggingface/tokenizers serialisation of normalizers, pre_tokenizers, models, processors, decoders.
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "text/tokenizer_model.h"

namespace magister {
namespace {

using nlohmann::json;
constexpr int kMaxDepth = 32;

// One value of the file with its place for messages.
class Node {
 public:
  Node(const json& value, std::string path, const std::string& source)
      : value_(value), path_(std::move(path)), source_(source) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::kData, "{}: {}: {}", source_, path_.empty() ? "the file" : printable(path_),
         fmt::format(format, std::forward<Args>(args)...));
  }
  void need(bool good, const char* expected) const {
    if (!good) refuse("is no {} (the file cannot be used); fetch it again", expected);
  }

  const json& value() const { return value_; }
  const std::string& source() const { return source_; }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_[key].is_null(); }
  Node at(const std::string& key) const {
    need(value_.is_object(), "object");
    if (!value_.contains(key)) refuse("has no \"{}\" (the file cannot be used); fetch it again", key);
    return {value_[key], path_.empty() ? key : path_ + "." + key, source_};
  }
  std::vector<Node> list() const {
    need(value_.is_array(), "list");
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < value_.size(); ++i)
      nodes.emplace_back(value_[i], fmt::format("{}[{}]", path_, i), source_);
    return nodes;
  }
  std::string text() const {
    need(value_.is_string(), "text");
    return value_.get<std::string>();
  }
  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    at(key).need(value_[key].is_boolean(), "true or false");
    return value_[key].get<bool>();
  }
  TokenId id() const {
    need(value_.is_number_integer(), "whole number");
    const auto number = value_.get<std::int64_t>();
    need(number >= 0 && number <= std::numeric_limits<TokenId>::max(), "token id");
    return static_cast<TokenId>(number);
  }
  std::string type() const { return at("type").text(); }
  // Keys that nobody reads could change ids: refused.
  void only(std::initializer_list<const char*> known) const {
    need(value_.is_object(), "object");
    for (const auto& [key, ignored] : value_.items()) {
      bool found = key == "type";
      for (const char* name : known) found = found || key == name;
      if (!found)
        refuse("has the key \"{}\", which is not known here (it could change the tokens); use a supported tokenizer",
               printable(key));
    }
  }

 private:
  const json& value_;
  std::string path_;
  const std::string& source_;
};

json parse(std::string_view text, const std::string& source) {
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

// True for NFC. Null, and a sequence of nothing but NFC, are the others that are known.
bool read_normalizer(const Node& node) {
  const std::string type = node.type();
  if (type == "NFC") return node.only({}), true;
  if (type == "Sequence") {
    node.only({"normalizers"});
    bool any = false;
    for (const Node& step : node.at("normalizers").list()) any = read_normalizer(step) || any;
    return any;
  }
  node.refuse("normalizer \"{}\" is not known here (NFC is); use a supported tokenizer", printable(type));
}

SplitBehavior read_behavior(const Node& node) {
  const std::string name = node.text();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.refuse("split behaviour \"{}\" is not known here; use a supported tokenizer", printable(name));
}

struct PreTokenizerParts {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  bool byte_level = false, add_prefix_space = false;
};

void read_pre_tokenizer(const Node& node, PreTokenizerParts& parts) {
  const std::string type = node.type();
  if (parts.byte_level) node.refuse("follows ByteLevel (it would see byte stand-ins); use a supported tokenizer");
  if (type == "Sequence") {
    node.only({"pretokenizers"});
    for (const Node& step : node.at("pretokenizers").list()) read_pre_tokenizer(step, parts);
  } else if (type == "Split") {
    node.only({"pattern", "behavior", "invert"});
    const Node pattern = node.at("pattern");
    pattern.only({"String", "Regex"});
    if (pattern.has("String") == pattern.has("Regex"))
      pattern.refuse("needs either String or Regex; fetch the file again");
    const std::string expression =
        pattern.has("Regex") ? pattern.at("Regex").text() : escape_pattern(pattern.at("String").text());
    if (expression.empty()) pattern.refuse("is empty (it matches nothing); fetch the file again");
    parts.steps.push_back(
        make_split(expression, read_behavior(node.at("behavior")), node.flag("invert", false), node.source()));
  } else if (type == "Digits") {
    node.only({"individual_digits"});
    parts.steps.push_back(make_digits(node.flag("individual_digits", false)));
  } else if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});
    parts.byte_level = true;
    parts.add_prefix_space = node.flag("add_prefix_space", true);
    if (parts.add_prefix_space && !parts.steps.empty()) {
      node.refuse(
          "add_prefix_space after other steps (each piece would get a space) is not known here; use a supported "
          "tokenizer");
    }
    if (node.flag("use_regex", true)) {
      parts.steps.push_back(make_split(kGpt2Pattern, SplitBehavior::kIsolated, false, node.source()));
    }
  } else {
    node.refuse(
        "pre-tokenizer \"{}\" is not known here (Sequence, Split, Digits and ByteLevel are); use a supported tokenizer",
        printable(type));
  }
}

AddedToken read_added_token(const Node& node) {
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

std::pair<std::string, std::string> read_merge(const Node& node) {
  if (node.value().is_array()) {
    node.need(node.value().size() == 2, "pair");
    return {node.list()[0].text(), node.list()[1].text()};
  }
  const std::string merge = node.text();
  const std::size_t space = merge.find(' ');
  node.need(space != std::string::npos && space > 0 && space + 1 < merge.size(), "pair \"left right\"");
  return {merge.substr(0, space), merge.substr(space + 1)};
}

std::unique_ptr<Bpe> read_model(const Node& node) {
  if (node.has("type") && node.type() != "BPE") {
    node.refuse("model \"{}\" is not known here (BPE is); use a supported tokenizer", printable(node.type()));
  }
  node.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
             "ignore_merges", "vocab", "merges"});
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const bool empty_text =
        node.has(key) && node.value()[key].is_string() && node.value()[key].get<std::string>().empty();
    // An unknown token is never needed where every byte has its own token; that is checked below.
    if (node.has(key) && !empty_text && std::string_view(key) != "unk_token") {
      node.at(key).refuse("is set, which is not known here (byte-level BPE has none); use a supported tokenizer");
    }
  }
  for (const char* key : {"fuse_unk", "byte_fallback"}) {
    if (node.flag(key, false))
      node.at(key).refuse("is true, which is not known here (byte-level BPE needs none); use a supported tokenizer");
  }
  std::unordered_map<std::string, TokenId> vocab;
  const Node entries = node.at("vocab");
  entries.need(entries.value().is_object(), "object");
  for (const auto& [token, id] : entries.value().items()) vocab.emplace(token, entries.at(token).id());
  if (vocab.empty()) entries.refuse("is empty (nothing can be encoded); fetch the file again");
  if (node.has("unk_token")) {
    for (const std::string& byte : byte_characters()) {
      if (!vocab.contains(byte))
        node.at("unk_token")
            .refuse("is set and not every byte has a token, which is not known here; use a supported tokenizer");
    }
  }
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Node& merge : node.at("merges").list()) merges.push_back(read_merge(merge));
  return std::make_unique<Bpe>(std::move(vocab), merges, node.flag("ignore_merges", false), node.source());
}

struct Affixes {
  std::vector<TokenId> prefix, suffix;
};

void read_template(const Node& node, Affixes& affixes) {
  node.only({"single", "pair", "special_tokens"});
  bool after_text = false;
  for (const Node& piece : node.at("single").list()) {
    piece.only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (after_text || piece.at("Sequence").at("id").text() != "A")
        piece.refuse("a template with more than one text is not known here; use a supported tokenizer");
      after_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").text();
    for (const Node& id : node.at("special_tokens").at(name).at("ids").list()) {
      (after_text ? affixes.suffix : affixes.prefix).push_back(id.id());
    }
  }
}

void read_post_processor(const Node& node, Affixes& affixes) {
  const std::string type = node.type();
  if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});  // changes offsets only
  } else if (type == "TemplateProcessing") {
    read_template(node, affixes);
  } else if (type == "Sequence") {
    node.only({"processors"});
    for (const Node& step : node.at("processors").list()) read_post_processor(step, affixes);
  } else {
    node.refuse(
        "post-processor \"{}\" is not known here (TemplateProcessing, ByteLevel and Sequence are); use a supported "
        "tokenizer",
        printable(type));
  }
}

void check_decoder(const Node& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& step : node.at("decoders").list()) check_decoder(step);
  } else if (type != "ByteLevel") {
    node.refuse("decoder \"{}\" is not known here (ByteLevel is); use a supported tokenizer", printable(type));
  }
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, const std::string& path) {
  const std::string source = printable(path);
  const json content = parse(tokenizer_json, source);
  const Node root(content, "", source);
  // Truncation and padding are the caller's choice at run time, not the vocabulary's: max_length rules here.
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  auto model = std::make_unique<Model>();
  model->source = source;
  if (root.has("normalizer")) model->nfc = read_normalizer(root.at("normalizer"));
  PreTokenizerParts parts;
  if (root.has("pre_tokenizer")) read_pre_tokenizer(root.at("pre_tokenizer"), parts);
  if (!parts.byte_level)
    root.refuse("has no ByteLevel pre-tokenizer (only byte-level BPE is read here); use a supported tokenizer");
  model->add_prefix_space = parts.add_prefix_space;
  if (!parts.steps.empty()) model->pre_tokenizer = make_sequence(std::move(parts.steps));
  if (root.has("added_tokens")) {
    for (const Node& token : root.at("added_tokens").list()) model->added.push_back(read_added_token(token));
  }
  Affixes affixes;
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), affixes);
  if (root.has("decoder")) check_decoder(root.at("decoder"));
  model->prefix = affixes.prefix;
  model->suffix = affixes.suffix;
  model->bpe = read_model(root.at("model"));
  model->sha256 = sha256_hex(tokenizer_json);
  model->finish();
  for (const auto& ids : {model->prefix, model->suffix}) {
    for (const TokenId id : ids) {
      if (id >= static_cast<TokenId>(model->bytes_of_id.size()))
        root.at("post_processor")
            .refuse("adds the id {}, outside the vocabulary of {}; fetch the file again", id,
                    model->bytes_of_id.size());
    }
  }
  return Tokenizer(std::move(model));
}

}  // namespace magister
