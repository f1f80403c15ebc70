#include "text/decoder.h"

#include <algorithm>

#include "magister/core/utf8.h"
#include "text/bpe.h"
#include "text/unicode.h"

namespace magister {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t found = from.empty() ? std::string_view::npos : text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

class ByteLevel final : public DecodeStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += inside(token);
    tokens.assign(1, replace_invalid_utf8(bytes));
  }
  std::string inside(std::string token) const override {
    std::string bytes;
    return bytes_of_token(token, bytes) ? bytes : token;
  }
};

class ByteFallback final : public DecodeStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes) == bytes.size()) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), kReplacement);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
  std::string inside(std::string token) const override {
    const int byte = byte_of(token);
    return byte < 0 ? token : std::string(1, static_cast<char>(byte));
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    const int low = digit(token[4]), high = token[3] == '+' ? 0 : digit(token[3]);  // Rust parses "+F" as a number too
    return low < 0 || high < 0 ? -1 : high * 16 + low;
  }
};

class Fuse final : public DecodeStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens.clear();
    tokens.push_back(std::move(text));
  }
};

class ReplaceDecoder final : public DecodeStep {
 public:
  ReplaceDecoder(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = replace_all(token, literal_, content_);
  }
  std::string inside(std::string token) const override { return replace_all(token, literal_, content_); }

 private:
  std::string literal_, content_;
};

class StripDecoder final : public DecodeStep {
 public:
  StripDecoder(std::string character, std::size_t start, std::size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::size_t i = 0; i < start_ && rest.starts_with(character_); ++i) rest.remove_prefix(character_.size());
      for (std::size_t i = 0; i < stop_ && rest.ends_with(character_); ++i) rest.remove_suffix(character_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string character_;
  std::size_t start_, stop_;
};

class MetaspaceDecoder final : public DecodeStep {
 public:
  MetaspaceDecoder(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(tokens[i], replacement_, i == 0 && drop_first_ ? "" : " ");
    }
  }
  std::string inside(std::string token) const override { return replace_all(token, replacement_, " "); }

 private:
  std::string replacement_;
  bool drop_first_;
};

class WordPieces final : public DecodeStep {
 public:
  WordPieces(std::string prefix, bool clean_up) : prefix_(std::move(prefix)), clean_up_(clean_up) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) tokens[i] = inside(tokens[i]);
      if (clean_up_) tokens[i] = cleaned(tokens[i]);
    }
  }
  std::string inside(std::string token) const override {
    return token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
  }

 private:
  static std::string cleaned(std::string text) {
    constexpr std::pair<const char*, const char*> kRules[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) text = replace_all(text, from, to);
    return text;
  }
  std::string prefix_;
  bool clean_up_;
};

class BpeSuffix final : public DecodeStep {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }
  std::string inside(std::string token) const override { return replace_all(token, suffix_, " "); }

 private:
  std::string suffix_;
};

class DecoderSequence final : public DecodeStep {
 public:
  explicit DecoderSequence(std::vector<DecodeStepPtr> steps) : steps_(std::move(steps)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (const DecodeStepPtr& step : steps_) step->apply(tokens);
  }
  std::string inside(std::string token) const override {
    for (const DecodeStepPtr& step : steps_) token = step->inside(std::move(token));
    return token;
  }

 private:
  std::vector<DecodeStepPtr> steps_;
};

// The bytes of an ill-formed prefix that belong together: as long as they could still become a character.
std::size_t ill_formed_bytes(std::string_view rest) {
  const auto first = static_cast<unsigned char>(rest[0]);
  const std::size_t wanted = first >= 0xF0 && first < 0xF5   ? 4
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xC2 && first < 0xE0 ? 2
                                                             : 1;
  std::size_t bad = 1;
  while (bad < wanted && bad < rest.size()) {
    const auto second = static_cast<unsigned char>(rest[1]);
    const bool second_fits = (second & 0xC0) == 0x80 && !(first == 0xE0 && second < 0xA0) &&
                             !(first == 0xED && second > 0x9F) && !(first == 0xF0 && second < 0x90) &&
                             !(first == 0xF4 && second > 0x8F);
    if (!second_fits || (static_cast<unsigned char>(rest[bad]) & 0xC0) != 0x80) break;
    ++bad;
  }
  return bad;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t good = find_invalid_utf8(rest);
    text += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) break;
    text += kReplacement;
    rest.remove_prefix(ill_formed_bytes(rest));
  }
  return text;
}

std::size_t incomplete_utf8_at_end(std::string_view bytes) {
  for (std::size_t count = 1; count <= 3 && count <= bytes.size(); ++count) {
    const std::string_view end = bytes.substr(bytes.size() - count);
    const auto first = static_cast<unsigned char>(end[0]);
    if ((first & 0xC0) == 0x80) continue;
    const std::size_t wanted = first >= 0xF0 && first < 0xF5   ? 4
                               : first >= 0xE0 && first < 0xF0 ? 3
                               : first >= 0xC2 && first < 0xE0 ? 2
                                                               : 1;
    return wanted > count && ill_formed_bytes(end) == count ? count : 0;
  }
  return 0;
}

DecodeStepPtr make_byte_level_decoder() { return std::make_unique<ByteLevel>(); }
DecodeStepPtr make_byte_fallback_decoder() { return std::make_unique<ByteFallback>(); }
DecodeStepPtr make_fuse_decoder() { return std::make_unique<Fuse>(); }
DecodeStepPtr make_replace_decoder(const std::string& literal, std::string content) {
  return std::make_unique<ReplaceDecoder>(literal, std::move(content));
}
DecodeStepPtr make_strip_decoder(std::string character, std::size_t start, std::size_t stop) {
  return std::make_unique<StripDecoder>(std::move(character), start, stop);
}
DecodeStepPtr make_metaspace_decoder(std::string replacement, bool drop_first) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), drop_first);
}
DecodeStepPtr make_wordpiece_decoder(std::string prefix, bool clean_up) {
  return std::make_unique<WordPieces>(std::move(prefix), clean_up);
}
DecodeStepPtr make_bpe_decoder(std::string suffix) { return std::make_unique<BpeSuffix>(std::move(suffix)); }
DecodeStepPtr make_decoder_sequence(std::vector<DecodeStepPtr> steps) {
  return std::make_unique<DecoderSequence>(std::move(steps));
}

}  // namespace magister
