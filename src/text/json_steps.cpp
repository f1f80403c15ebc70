// Normalizers, pre-tokenizers and decoders of tokenizer.json.
// Source: huggingface/tokenizers, the serialisation of each, with its defaults.
#include "text/base64.h"
#include "text/json_parts.h"

namespace magister {
namespace {

struct TextPattern {
  std::string literal, regex;  // exactly one is set
};

TextPattern read_pattern(const JsonNode& node) {
  if (node.value().is_string()) return {node.text(), ""};
  node.only({"String", "Regex"});
  if (node.has("String") == node.has("Regex"))
    node.refuse("needs either String or Regex (the pattern is unknown); fetch the file again");
  TextPattern pattern;
  (node.has("Regex") ? pattern.regex : pattern.literal) = node.at(node.has("Regex") ? "Regex" : "String").text();
  if (pattern.regex.empty() && pattern.literal.empty())
    node.refuse("is empty (it matches nothing); fetch the file again");
  return pattern;
}

std::string from_base64(const JsonNode& node) {
  const std::optional<std::string> bytes = decode_base64(node.text());
  if (!bytes) node.refuse("is not base64 (it cannot be read); fetch the file again");
  return *bytes;
}

NormalizerPtr read_replace(const JsonNode& node) {
  node.only({"pattern", "content"});
  const TextPattern pattern = read_pattern(node.at("pattern"));
  const std::string content = node.at("content").text();
  return pattern.regex.empty() ? make_replace(pattern.literal, content)
                               : make_pattern_replace(pattern.regex, content, node.source());
}

NormalizerPtr read_bert_normalizer(const JsonNode& node) {
  node.only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertRules rules;
  rules.clean_text = node.flag("clean_text", true);
  rules.handle_chinese_chars = node.flag("handle_chinese_chars", true);
  rules.lowercase = node.flag("lowercase", true);
  rules.strip_accents = node.flag("strip_accents", rules.lowercase);
  return make_bert_normalizer(rules);
}

}  // namespace

NormalizerPtr read_json_normalizer(const JsonNode& node) {
  const std::string type = node.type();
  const auto plain = [&](NormalizerPtr normalizer) { return node.only({}), std::move(normalizer); };
  if (type == "NFC") return plain(make_unicode_normalizer(UnicodeForm::kNfc));
  if (type == "NFD") return plain(make_unicode_normalizer(UnicodeForm::kNfd));
  if (type == "NFKC") return plain(make_unicode_normalizer(UnicodeForm::kNfkc));
  if (type == "NFKD") return plain(make_unicode_normalizer(UnicodeForm::kNfkd));
  if (type == "Lowercase") return plain(make_lowercase());
  if (type == "StripAccents") return plain(make_strip_accents());
  if (type == "ByteLevel") return plain(make_byte_level_normalizer());
  if (type == "Nmt") return plain(make_nmt());
  if (type == "Replace") return read_replace(node);
  if (type == "BertNormalizer") return read_bert_normalizer(node);
  if (type == "Strip") {
    node.only({"strip_left", "strip_right"});
    return make_strip(node.flag("strip_left", true), node.flag("strip_right", true));
  }
  if (type == "Prepend") {
    node.only({"prepend"});
    return make_prepend(node.at("prepend").text());
  }
  if (type == "Precompiled") {
    node.only({"precompiled_charsmap"});
    const JsonNode map = node.at("precompiled_charsmap");
    if (map.value().is_null()) return make_prepend("");  // replaces nothing
    return make_precompiled(from_base64(map), node.source());
  }
  if (type == "Sequence") {
    node.only({"normalizers"});
    std::vector<NormalizerPtr> steps;
    for (const JsonNode& step : node.at("normalizers").list()) steps.push_back(read_json_normalizer(step));
    return make_normalizer_sequence(std::move(steps));
  }
  node.refuse(
      "normalizer \"{}\" is not known here (NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Prepend, "
      "Replace, Precompiled, BertNormalizer, ByteLevel and Sequence are); use a supported tokenizer",
      printable(type));
}

SplitBehavior read_split_behavior(const JsonNode& node) {
  const std::string name = node.text();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.refuse("split behaviour \"{}\" is not known here (texts would be cut elsewhere); use a supported tokenizer",
              printable(name));
}

namespace {

// Reads a text that must be exactly one character.
std::string read_character(const JsonNode& node) {
  const std::string text = node.text();
  if (text.empty() || code_point_at(text, 0).bytes != text.size())
    node.refuse("is not one character (nothing else is possible here); fetch the file again");
  return text;
}

struct MetaspaceKeys {
  std::string replacement;
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};

MetaspaceKeys read_metaspace(const JsonNode& node) {
  node.only({"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  MetaspaceKeys keys;
  keys.replacement = node.has("replacement") ? read_character(node.at("replacement")) : "\xE2\x96\x81";
  const std::string scheme = node.has("prepend_scheme") ? node.at("prepend_scheme").text() : "always";
  if (scheme == "first") {
    keys.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    keys.scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    node.at("prepend_scheme")
        .refuse("\"{}\" is not known here (first, never, always are); use a supported tokenizer", printable(scheme));
  }
  if (!node.flag("add_prefix_space", true)) {  // older files have this instead of a scheme
    if (node.has("prepend_scheme") && keys.scheme != PrependScheme::kNever)
      node.refuse("add_prefix_space is false and prepend_scheme {} (which is meant?); fetch the file again",
                  printable(scheme));
    keys.scheme = PrependScheme::kNever;
  }
  keys.split = node.flag("split", true);
  return keys;
}

void read_byte_level(const JsonNode& node, JsonPreTokenizer& into) {
  node.only({"add_prefix_space", "trim_offsets", "use_regex"});
  into.byte_level = true;
  const bool own = node.flag("add_prefix_space", true), taken = into.add_prefix_space.value_or(own);
  into.overruled = own != taken;
  if (taken) into.steps.push_back(make_prefix_space());
  if (node.flag("use_regex", true))
    into.steps.push_back(make_split(kGpt2Pattern, SplitBehavior::kIsolated, false, node.source()));
}

PreTokenizerPtr read_split(const JsonNode& node) {
  node.only({"pattern", "behavior", "invert"});
  const TextPattern pattern = read_pattern(node.at("pattern"));
  return make_split(pattern.regex.empty() ? escape_pattern(pattern.literal) : pattern.regex,
                    read_split_behavior(node.at("behavior")), node.flag("invert", false), node.source());
}

PreTokenizerPtr read_one_pre_tokenizer(const JsonNode& node, const std::string& type) {
  if (type == "Split") return read_split(node);
  if (type == "Metaspace") {
    const MetaspaceKeys keys = read_metaspace(node);
    return make_metaspace(keys.replacement, keys.scheme, keys.split);
  }
  if (type == "Digits") {
    node.only({"individual_digits"});
    return make_digits(node.flag("individual_digits", false));
  }
  if (type == "Punctuation") {
    node.only({"behavior"});
    return make_punctuation(node.has("behavior") ? read_split_behavior(node.at("behavior")) : SplitBehavior::kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    node.only({"delimiter"});
    return make_delimiter_split(code_point_at(read_character(node.at("delimiter")), 0).value);
  }
  if (type == "FixedLength") {
    node.only({"length"});
    const std::size_t length = node.has("length") ? node.at("length").size(1u << 30) : 5;
    if (length == 0) node.at("length").refuse("is 0 (pieces would have no end); fetch the file again");
    return make_fixed_length(length);
  }
  if (type == "BertPreTokenizer") return node.only({}), make_bert();
  if (type == "Whitespace") return node.only({}), make_whitespace();
  if (type == "WhitespaceSplit") return node.only({}), make_whitespace_split();
  node.refuse(
      "pre-tokenizer \"{}\" is not known here (Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
      "WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, FixedLength and Sequence are); use a supported tokenizer",
      printable(type));
}

}  // namespace

void read_json_pre_tokenizer(const JsonNode& node, JsonPreTokenizer& into) {
  const std::string type = node.type();
  if (into.byte_level) node.refuse("follows ByteLevel (it would see byte characters); use a supported tokenizer");
  if (type == "Sequence") {
    node.only({"pretokenizers"});
    for (const JsonNode& step : node.at("pretokenizers").list()) read_json_pre_tokenizer(step, into);
  } else if (type == "ByteLevel") {
    read_byte_level(node, into);
  } else {
    into.steps.push_back(read_one_pre_tokenizer(node, type));
  }
}

namespace {

DecodeStepPtr read_one_decoder(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "ByteLevel")
    return node.only({"add_prefix_space", "trim_offsets", "use_regex"}), make_byte_level_decoder();
  if (type == "ByteFallback") return node.only({}), make_byte_fallback_decoder();
  if (type == "Fuse") return node.only({}), make_fuse_decoder();
  if (type == "Replace") {
    node.only({"pattern", "content"});
    const TextPattern pattern = read_pattern(node.at("pattern"));
    if (!pattern.regex.empty())
      node.at("pattern").refuse("is a Regex in a decoder (which is not known here); use a supported tokenizer");
    return make_replace_decoder(pattern.literal, node.at("content").text());
  }
  if (type == "Strip") {
    node.only({"content", "start", "stop"});
    return make_strip_decoder(read_character(node.at("content")), node.at("start").size(1u << 30),
                              node.at("stop").size(1u << 30));
  }
  if (type == "Metaspace") {
    const MetaspaceKeys keys = read_metaspace(node);
    return make_metaspace_decoder(keys.replacement, keys.scheme != PrependScheme::kNever);
  }
  if (type == "WordPiece") {
    node.only({"prefix", "cleanup"});
    return make_wordpiece_decoder(node.has("prefix") ? node.at("prefix").text() : "##", node.flag("cleanup", true));
  }
  if (type == "BPEDecoder") {
    node.only({"suffix"});
    return make_bpe_decoder(node.has("suffix") ? node.at("suffix").text() : "</w>");
  }
  if (type == "Sequence") {
    node.only({"decoders"});
    std::vector<DecodeStepPtr> steps;
    for (const JsonNode& step : node.at("decoders").list()) steps.push_back(read_one_decoder(step));
    return make_decoder_sequence(std::move(steps));
  }
  node.refuse(
      "decoder \"{}\" is not known here (ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece, "
      "BPEDecoder and Sequence are); use a supported tokenizer",
      printable(type));
}

}  // namespace

void read_json_decoder(const JsonNode& node, Tokenizer::Model& model) {
  model.decoder = read_one_decoder(node);
  // The decoder joins the bytes of the tokens, which is what a file with this step alone means.
  if (node.type() == "ByteLevel") model.decoding = Tokenizer::Model::Decoding::kBytes;
}

}  // namespace magister
