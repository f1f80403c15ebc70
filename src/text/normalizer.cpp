#include "text/normalizer.h"

#include <utf8proc.h>

#include "text/bpe.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace magister {
namespace {

// Calls each(code point, its bytes) in order.
template <typename Each>
void each_code_point(std::string_view text, const Each& each) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    each(point.value, text.substr(at, point.bytes));
    at += point.bytes;
  }
}

class Function final : public Normalizer {
 public:
  explicit Function(std::string (*function)(std::string_view)) : function_(function) {}
  void apply(std::string& text) const override { text = function_(text); }

 private:
  std::string (*function_)(std::string_view);
};

std::string without(std::string_view text, int char_class_bits) {
  std::string out;
  each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if ((char_class(c) & char_class_bits) == 0) out += bytes;
  });
  return out;
}

std::string strip_accents(std::string_view text) { return without(text, kMark); }

std::string nmt(std::string_view text) {
  std::string out;
  each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if ((c >= 1 && c <= 8) || c == 11 || (c >= 14 && c <= 31) || c == 127 || c == 143 || c == 159) return;
    const bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    if (space)
      out += ' ';
    else
      out += bytes;
  });
  return out;
}

std::string byte_level(std::string_view text) {
  std::string out;
  for (const char c : text) out += byte_characters()[static_cast<unsigned char>(c)];
  return out;
}

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    std::size_t begin = std::string::npos, end = 0, at = 0;
    each_code_point(text, [&](char32_t c, std::string_view bytes) {
      if (!is_space(c)) {
        if (begin == std::string::npos) begin = at;
        end = at + bytes.size();
      }
      at += bytes.size();
    });
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    text = begin >= end ? std::string() : text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::string literal, std::string content) : literal_(std::move(literal)), content_(std::move(content)) {}
  void apply(std::string& text) const override {
    std::size_t found = literal_.empty() ? std::string::npos : text.find(literal_);
    if (found == std::string::npos) return;
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    std::size_t begin = 0;
    for (; found != std::string::npos; found = text.find(literal_, begin)) {
      out.append(text, begin, found - begin).append(content_);
      begin = found + literal_.size();
    }
    text = std::move(out.append(text, begin));
  }

 private:
  std::string literal_, content_;
};

class PatternReplace final : public Normalizer {
 public:
  PatternReplace(const std::string& pattern, std::string content, const std::string& source)
      : pattern_(pattern, source), content_(std::move(content)) {}
  void apply(std::string& text) const override {
    std::vector<Match> matches;
    pattern_.find_all(text, matches);
    if (matches.empty()) return;
    std::string out;
    std::size_t begin = 0;
    for (const Match& match : matches) {
      out.append(text, begin, match.begin - begin).append(content_);
      begin = match.end;
    }
    text = std::move(out.append(text, begin));
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Replaces a grapheme as a whole if the charsmap has it (it has only short ones), otherwise character by character.
class Precompiled final : public Normalizer {
 public:
  Precompiled(std::string_view charsmap, const std::string& source) : charsmap_(charsmap, source) {}
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    const std::string_view whole = text;
    for (std::size_t begin = 0; begin < whole.size();) {
      const std::size_t end = grapheme_end(whole, begin);
      const std::string_view grapheme = whole.substr(begin, end - begin);
      begin = end;
      if (grapheme.size() < 6) {
        if (const auto found = charsmap_.shortest(grapheme)) {
          out += *found;
          continue;
        }
      }
      each_code_point(grapheme,
                      [&](char32_t, std::string_view bytes) { out += charsmap_.shortest(bytes).value_or(bytes); });
    }
    text = std::move(out);
  }

 private:
  static std::size_t grapheme_end(std::string_view text, std::size_t begin) {
    CodePoint point = code_point_at(text, begin);
    utf8proc_int32_t state = 0;
    for (std::size_t at = begin + point.bytes;; at += point.bytes) {
      if (at >= text.size()) return text.size();
      const CodePoint next = code_point_at(text, at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(point.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state))
        return at;
      point = next;
    }
  }
  Charsmap charsmap_;
};

class Bert final : public Normalizer {
 public:
  explicit Bert(BertRules rules) : rules_(rules) {}
  void apply(std::string& text) const override {
    std::string out;
    each_code_point(text, [&](char32_t c, std::string_view bytes) {
      const int kind = char_class(c);
      if (rules_.clean_text && (kind & kBertControl) != 0) return;
      const bool space = rules_.clean_text && (kind & kSpace) != 0,
                 chinese = rules_.handle_chinese_chars && is_chinese(c);
      if (chinese) out += ' ';
      out += space ? std::string_view(" ") : bytes;
      if (chinese) out += ' ';
    });
    if (rules_.strip_accents) out = without(normal_form(out, UnicodeForm::kNfd), kNonspacingMark);
    if (rules_.lowercase) out = lowercase(out);
    text = std::move(out);
  }

 private:
  static bool is_chinese(char32_t c) {  // with the reference's 2B920, which is 2B820 in Python
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }
  BertRules rules_;
};

class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(SentencePieceRules rules, const std::string& source)
      : rules_(std::move(rules)), charsmap_(rules_.charsmap, source) {
    for (const std::string& text : rules_.user_defined) {
      if (!text.empty()) user_defined_[static_cast<unsigned char>(text[0])].push_back(text);
    }
  }

  void apply(std::string& text) const override {
    const std::string_view space = rules_.escape_whitespaces ? "\xE2\x96\x81" : " ";
    std::string_view rest = text;
    if (rules_.remove_extra_whitespaces) {
      for (std::size_t bytes = 0; !rest.empty() && prefix(rest, bytes) == " ";) rest.remove_prefix(bytes);
    }
    std::string out;
    out.reserve(rest.size() * 2 + 3);
    if (rest.empty()) {
      text.clear();
      return;
    }
    if (!rules_.whitespace_as_suffix && rules_.add_dummy_prefix) out += space;
    bool after_space = rules_.remove_extra_whitespaces;
    while (!rest.empty()) {
      std::size_t bytes = 0;
      std::string_view part = prefix(rest, bytes);
      rest.remove_prefix(bytes);
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      for (const char c : part) {
        if (c == ' ')
          out += space;
        else
          out += c;
      }
      if (!part.empty()) after_space = part.ends_with(' ');
      if (!rules_.remove_extra_whitespaces) after_space = false;
    }
    if (rules_.remove_extra_whitespaces) {
      while (std::string_view(out).ends_with(space)) out.resize(out.size() - space.size());
    }
    if (rules_.whitespace_as_suffix && rules_.add_dummy_prefix) out += space;
    text = std::move(out);
  }

 private:
  // Returns what the beginning of the text becomes; bytes: the length of that beginning.
  std::string_view prefix(std::string_view text, std::size_t& bytes) const {
    bytes = 0;
    for (const std::string& token : user_defined_[static_cast<unsigned char>(text[0])]) {
      if (token.size() > bytes && text.starts_with(token)) bytes = token.size();
    }
    if (bytes > 0) return text.substr(0, bytes);
    const std::string_view found = charsmap_.longest(text, bytes);
    if (bytes > 0) return found;
    bytes = code_point_at(text, 0).bytes;
    return text.substr(0, bytes);
  }

  SentencePieceRules rules_;
  Charsmap charsmap_;
  std::vector<std::string> user_defined_[256];
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}
  void apply(std::string& text) const override {
    for (const NormalizerPtr& step : steps_) step->apply(text);
  }

 private:
  std::vector<NormalizerPtr> steps_;
};

}  // namespace

NormalizerPtr make_unicode_normalizer(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfd:
      return std::make_unique<Function>([](std::string_view text) { return normal_form(text, UnicodeForm::kNfd); });
    case UnicodeForm::kNfkc:
      return std::make_unique<Function>([](std::string_view text) { return normal_form(text, UnicodeForm::kNfkc); });
    case UnicodeForm::kNfkd:
      return std::make_unique<Function>([](std::string_view text) { return normal_form(text, UnicodeForm::kNfkd); });
    case UnicodeForm::kNfc:
      break;
  }
  return std::make_unique<Function>([](std::string_view text) { return normal_form(text, UnicodeForm::kNfc); });
}
NormalizerPtr make_lowercase() { return std::make_unique<Function>(lowercase); }
NormalizerPtr make_strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }
NormalizerPtr make_strip_accents() { return std::make_unique<Function>(strip_accents); }
NormalizerPtr make_nmt() { return std::make_unique<Function>(nmt); }
NormalizerPtr make_prepend(std::string text) { return std::make_unique<Prepend>(std::move(text)); }
NormalizerPtr make_replace(const std::string& literal, std::string content) {
  return std::make_unique<Replace>(literal, std::move(content));
}
NormalizerPtr make_pattern_replace(const std::string& pattern, std::string content, const std::string& source) {
  return std::make_unique<PatternReplace>(pattern, std::move(content), source);
}
NormalizerPtr make_precompiled(std::string_view charsmap, const std::string& source) {
  return std::make_unique<Precompiled>(charsmap, source);
}
NormalizerPtr make_byte_level_normalizer() { return std::make_unique<Function>(byte_level); }
NormalizerPtr make_bert_normalizer(BertRules rules) { return std::make_unique<Bert>(rules); }
NormalizerPtr make_sentencepiece_normalizer(SentencePieceRules rules, const std::string& source) {
  return std::make_unique<SentencePieceNormalizer>(std::move(rules), source);
}
NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> steps) {
  return std::make_unique<Sequence>(std::move(steps));
}

}  // namespace magister
