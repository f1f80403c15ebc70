// The precedence of the three files; see named_tokens.h.
#include "text/named_tokens.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "magister/core/error.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;
using NamedTexts = std::vector<std::pair<std::string, Json>>;

constexpr const char* kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// Classes that rebuild their byte-level pre-tokenizer with add_prefix_space; the others keep that of tokenizer.json.
constexpr const char* kTakePrefixSpace[] = {"GPT2Tokenizer",    "RobertaTokenizer", "DebertaTokenizer",
                                            "CodeGenTokenizer", "CohereTokenizer",  "BlenderbotTokenizer"};

bool is_named(std::string_view key) { return std::find(std::begin(kNamed), std::end(kNamed), key) != std::end(kNamed); }

Json object_of(const std::string& text, const std::string& source) {
  if (text.empty()) return Json::object();
  Json content = Json::parse(text, nullptr, false);
  MAGISTER_CHECK(content.is_object(), ExitCode::kData,
                 "{}: is not a JSON object (it names tokens of the vocabulary); fetch the file again", source);
  return content;
}

bool is_token(const Json& value) { return value.is_string() || (value.is_object() && value.contains("content")); }

// A plain text is a special token; an object has flags.
AddedToken token_of(const Json& value, const std::string& source, const std::string& key) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    token.special = true;
    return token;
  }
  const auto refuse = [&](const char* what) {
    fail(ExitCode::kData, "{}: {}: {} (it names a token of the vocabulary); fetch the file again", source,
         printable(key), what);
  };
  if (!value.is_object() || !value.contains("content") || !value.at("content").is_string())
    refuse("is neither a text nor an object with its content");
  token.content = value.at("content").get<std::string>();
  const auto flag = [&](const char* name, bool fallback) {
    if (!value.contains(name)) return fallback;
    if (!value.at(name).is_boolean()) refuse("a flag is neither true nor false");
    return value.at(name).get<bool>();
  };
  token.special = flag("special", false);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.normalized = flag("normalized", !token.special);
  return token;
}

class Reader {
 public:
  Reader(const TokenizerConfigFiles& files, const nlohmann::json* tokenizer_json)
      : config_name_(in(files, "tokenizer_config.json")),
        map_name_(in(files, "special_tokens_map.json")),
        added_name_(in(files, "added_tokens.json")),
        config_(object_of(files.config, config_name_)) {
    refuse_other_ways();
    if (config_.contains("additional_special_tokens") && !has_some(config_, "extra_special_tokens"))
      move_key("additional_special_tokens", "extra_special_tokens");
    take_model_specific();
    if (config_.contains("added_tokens_decoder")) {
      read_decoder();
      ids_are_of_ = "added_tokens_decoder of tokenizer_config.json";
      return;
    }
    merge_map(object_of(files.special_tokens_map, map_name_));
    read_added_json(object_of(files.added_tokens, added_name_));
    if (tokenizer_json != nullptr) read_own(*tokenizer_json);
  }

  NamedTokens result(const nlohmann::json* tokenizer_json) {
    NamedTokens found;
    found.ids_are_of = ids_are_of_;
    name_special(tokenizer_json);
    for (const auto& [id, token] : decoder_) found.by_id.emplace_back(id, token.content), found.added.push_back(token);
    std::unordered_set<std::string> listed = own_;
    for (const AddedToken& token : found.added) listed.insert(token.content);
    const auto add = [&](const AddedToken& token) {
      if (!listed.contains(token.content)) found.added.push_back(token);
    };
    for (const auto& [name, token] : special_) {
      found.special.emplace_back(name, token.content);
      add(token);
    }
    for (const AddedToken& token : extra_) add(token);
    for (AddedToken& token : found.added) {  // named tokens are special
      token.special |= std::any_of(special_.begin(), special_.end(),
                                   [&](const auto& one) { return one.second.content == token.content; });
    }
    read_class(found);
    return found;
  }

 private:
  static std::string in(const TokenizerConfigFiles& files, const char* name) {
    return printable(files.folder + "/" + name, 4096);
  }

  static bool has_some(const Json& object, const char* key) {
    if (!object.contains(key)) return false;
    const Json& value = object.at(key);
    return !value.is_null() && !value.empty() && value != "" && value != false;
  }

  void refuse_other_ways() const {
    MAGISTER_CHECK(
        !has_some(config_, "split_special_tokens"), ExitCode::kData,
        "{}: split_special_tokens is set (special tokens of chats would be read as letters, which is not known here); "
        "remove it",
        config_name_);
    if (!config_.contains("fast_tokenizer_files")) return;
    for (const Json& name : config_.at("fast_tokenizer_files")) {
      MAGISTER_CHECK(
          name == "tokenizer.json", ExitCode::kData,
          "{}: fast_tokenizer_files names {} (which transformers takes in place of tokenizer.json); put that file's "
          "content into tokenizer.json and remove the key",
          config_name_, printable(name.dump()));
    }
  }

  void move_key(const char* from, const char* to) {
    Json value = std::move(config_.at(from));
    config_.erase(from);
    config_[to] = std::move(value);
  }

  static bool is_model_specific(const std::string& key) { return !is_named(key) && key.ends_with("_token"); }

  static void set(NamedTexts& into, const std::string& key, Json value) {
    for (auto& [name, text] : into) {
      if (name == key) return void(text = std::move(value));
    }
    into.emplace_back(key, std::move(value));
  }

  // Takes keys such as image_token, and extra_special_tokens if it is an object of names.
  void take_model_specific() {
    for (const auto& [key, value] : config_.items()) {
      if (is_model_specific(key) && value.is_string()) set(explicit_, key, value);
    }
    for (const auto& [key, value] : explicit_) config_.erase(key);
    take_extra_names();
  }

  void take_extra_names() {
    if (!config_.contains("extra_special_tokens") || !config_.at("extra_special_tokens").is_object()) return;
    for (const auto& [key, value] : config_.at("extra_special_tokens").items()) set(explicit_, key, value);
    config_.erase("extra_special_tokens");
  }

  void read_decoder() {
    const Json& listed = config_.at("added_tokens_decoder");
    MAGISTER_CHECK(
        listed.is_object(), ExitCode::kData,
        "{}: added_tokens_decoder is not an object of ids and tokens (it names tokens of the vocabulary); fetch "
        "the file again",
        config_name_);
    for (const auto& [key, value] : listed.items()) {
      TokenId id = -1;
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
      MAGISTER_CHECK(
          parsed.ec == std::errc() && parsed.ptr == key.data() + key.size() && id >= 0 && value.is_object(),
          ExitCode::kData,
          "{}: added_tokens_decoder: \"{}\" is not an id with a token (it names tokens of the vocabulary); fetch the "
          "file again",
          config_name_, printable(key));
      decoder_[id] = token_of(value, config_name_, "added_tokens_decoder." + key);
    }
  }

  void merge_map(const Json& map) {
    for (const auto& [key, value] : map.items()) {
      Json merged = value;
      if (value.is_object() && key != "extra_special_tokens") {
        merged["special"] = true;
      } else if (key == "extra_special_tokens" && value.is_array()) {
        merged = config_.contains(key) && config_.at(key).is_array() ? config_.at(key) : Json::array();
        for (Json token : value) {
          if (token.is_object()) token["special"] = true;
          if (std::find(merged.begin(), merged.end(), token) == merged.end()) merged.push_back(token);
        }
      }
      config_[key] = std::move(merged);
    }
    take_extra_names();
  }

  void read_added_json(const Json& listed) {
    std::vector<std::string> special;
    // transformers ignores objects of tokenizer_config.json here (they have "__type"), but not those of
    // special_tokens_map.json.
    const auto take = [&](const Json& one, const char* name) {
      if (one.is_string() || !one.contains("__type")) special.push_back(token_of(one, config_name_, name).content);
    };
    for (const char* name : kNamed) {
      if (has_some(config_, name)) take(config_.at(name), name);
    }
    if (has_some(config_, "extra_special_tokens")) {
      for (const Json& one : config_.at("extra_special_tokens")) take(one, "extra_special_tokens");
    }
    for (const auto& [text, id] : listed.items()) {
      MAGISTER_CHECK(id.is_number_integer() && id >= 0 && id <= (1 << 24), ExitCode::kData,
                     "{}: \"{}\" has no id (it is to be a token of the vocabulary); fetch the file again", added_name_,
                     printable(text));
      AddedToken token;
      token.content = text;
      token.special = std::find(special.begin(), special.end(), text) != special.end();
      token.normalized = !token.special;
      decoder_[id.get<TokenId>()] = std::move(token);
    }
  }

  // The added tokens of tokenizer.json override those of added_tokens.json with the same id. The reader of
  // tokenizer.json reports faults in them.
  void read_own(const nlohmann::json& tokenizer_json) {
    if (!tokenizer_json.is_object() || !tokenizer_json.contains("added_tokens")) return;
    for (const Json one : tokenizer_json.at("added_tokens")) {
      if (!one.is_object() || !one.contains("id") || !one.at("id").is_number_integer()) continue;
      try {
        decoder_[one.at("id").get<TokenId>()] = token_of(one, config_name_, "added_tokens");
      } catch (const Error&) {
      }
    }
  }

  AddedToken known(const Json& value, const std::string& key) const {
    AddedToken token = token_of(value, config_name_, key);
    for (const auto& [id, listed] : decoder_) {
      if (listed.content == token.content) return listed;
    }
    return token;
  }

  void name_special(const nlohmann::json* tokenizer_json) {
    if (tokenizer_json != nullptr && tokenizer_json->is_object()) {
      if (tokenizer_json->contains("padding") && tokenizer_json->at("padding").is_object() &&
          tokenizer_json->at("padding").contains("pad_token") && !config_.contains("pad_token"))
        config_["pad_token"] = Json(tokenizer_json->at("padding").at("pad_token"));
      if (tokenizer_json->contains("added_tokens")) {
        for (const auto& one : tokenizer_json->at("added_tokens")) {
          if (one.is_object() && one.contains("content") && one.at("content").is_string())
            own_.insert(one.at("content").get<std::string>());
        }
      }
    }
    if (config_.contains("additional_special_tokens") && !config_.contains("extra_special_tokens"))
      move_key("additional_special_tokens", "extra_special_tokens");
    for (const char* name : kNamed) {
      if (config_.contains(name) && !config_.at(name).is_null())
        special_.emplace_back(name, known(config_.at(name), name));
    }
    NamedTexts specific;
    for (const auto& [key, value] : config_.items()) {
      if (is_model_specific(key) && is_token(value)) set(specific, key, value);
    }
    for (const auto& [key, value] : explicit_) set(specific, key, value);
    for (const auto& [key, value] : specific) special_.emplace_back(key, known(value, key));
    if (!has_some(config_, "extra_special_tokens")) return;
    for (const Json& one : config_.at("extra_special_tokens"))
      extra_.push_back(token_of(one, config_name_, "extra_special_tokens"));
  }

  bool flag(const char* key) const { return config_.contains(key) && config_.at(key) == true; }

  void read_class(NamedTokens& found) const {
    if (!config_.contains("tokenizer_class") || !config_.at("tokenizer_class").is_string()) return;
    std::string& name = found.tokenizer_class = config_.at("tokenizer_class").get<std::string>();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    found.legacy = flag("legacy");
    if (!config_.contains("add_prefix_space") || !config_.at("add_prefix_space").is_boolean()) return;
    if (std::find(std::begin(kTakePrefixSpace), std::end(kTakePrefixSpace), name) != std::end(kTakePrefixSpace))
      found.add_prefix_space = flag("add_prefix_space");
  }

  std::string config_name_, map_name_, added_name_, ids_are_of_ = "added_tokens.json";
  Json config_;
  NamedTexts explicit_;                    // named tokens specific to this model
  std::map<TokenId, AddedToken> decoder_;  // by id
  std::vector<std::pair<std::string, AddedToken>> special_;
  std::vector<AddedToken> extra_;
  std::unordered_set<std::string> own_;  // texts of tokenizer.json's added tokens
};

}  // namespace

NamedTokens read_named_tokens(const TokenizerConfigFiles& files, const nlohmann::json* tokenizer_json) {
  return Reader(files, tokenizer_json).result(tokenizer_json);
}

void take_named_tokens(const TokenizerConfigFiles& files, Tokenizer::Model& model) {
  NamedTokens named = read_named_tokens(files, nullptr);
  std::unordered_map<std::string, TokenId> id_of;
  for (const AddedToken& token : model.added) id_of[token.content] = token.id;
  const auto known = [&](const std::string& text) {
    const auto added = id_of.find(text);
    if (added != id_of.end()) return added->second;
    const auto found = model.vocab.find(text);
    return found == model.vocab.end() ? TokenId{-1} : found->second;
  };
  const auto check = [&](bool good, const std::string& text) {
    MAGISTER_CHECK(
        good, ExitCode::kData,
        "{}: \"{}\", which a file next to it names as a token, is not one here or has another id (a text with it would "
        "become other tokens); save the tokenizer as tokenizer.json",
        model.source, printable(text));
  };
  for (const AddedToken& token : named.added) {
    if (!token.content.empty()) check(known(token.content) >= 0, token.content);
  }
  for (const auto& [id, text] : named.by_id) check(known(text) == id, text);
  model.special_tokens = std::move(named.special);
}

}  // namespace magister
