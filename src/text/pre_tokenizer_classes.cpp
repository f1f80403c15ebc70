// Pre-tokenizers that split by classes of characters or write their own pieces.
// Source: huggingface/tokenizers pre_tokenizers (digits, whitespace, punctuation, bert, delimiter, fixed_length,
// metaspace).
#include <algorithm>

#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace magister {
namespace {

// Makes every character for which `is` is true a match of its own.
template <typename Is>
std::vector<Match> single_matches(std::string_view text, const Is& is) {
  std::vector<Match> matches;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (is(point.value)) matches.push_back({at, at + point.bytes});
    at += point.bytes;
  }
  return matches;
}

using IsKind = bool (*)(char32_t);
bool is_digit(char32_t c) { return (char_class(c) & kDigit) != 0; }
bool is_punctuation(char32_t c) { return (char_class(c) & kPunctuation) != 0; }

class ByKind final : public PreTokenizer {
 public:
  ByKind(IsKind is, SplitBehavior behavior) : is_(is), behavior_(behavior) {}
  void split(const Piece& piece, Pieces& out) const override {
    split_at_matches(piece, single_matches(piece.text, is_), behavior_, false, out);
  }

 private:
  IsKind is_;
  SplitBehavior behavior_;
};

class Delimiter final : public PreTokenizer {
 public:
  explicit Delimiter(char32_t delimiter) : delimiter_(delimiter) {}
  void split(const Piece& piece, Pieces& out) const override {
    const auto matches = single_matches(piece.text, [this](char32_t c) { return c == delimiter_; });
    split_at_matches(piece, matches, SplitBehavior::kRemoved, false, out);
  }

 private:
  char32_t delimiter_;
};

// \w+|[^\w\s]+
class Words final : public PreTokenizer {
 public:
  void split(const Piece& piece, Pieces& out) const override {
    const std::string_view text = piece.text;
    const auto kind = [&](const CodePoint& point) {
      const int bits = char_class(point.value);
      return (bits & kWord) != 0 ? 1 : (bits & kSpace) != 0 ? 0 : 2;
    };
    for (std::size_t at = 0; at < text.size();) {
      CodePoint point = code_point_at(text, at);
      const int first = kind(point);
      const std::size_t begin = at;
      do {
        at += point.bytes;
        if (at < text.size()) point = code_point_at(text, at);
      } while (at < text.size() && kind(point) == first);
      if (first != 0) out.list.push_back({text.substr(begin, at - begin), piece.at_start && begin == 0});
    }
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t characters) : characters_(characters) {}
  void split(const Piece& piece, Pieces& out) const override {
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t begin = at;
      for (std::size_t i = 0; i < characters_ && at < piece.text.size(); ++i) at += code_point_at(piece.text, at).bytes;
      out.list.push_back({piece.text.substr(begin, at - begin), piece.at_start && begin == 0});
    }
  }

 private:
  std::size_t characters_;
};

class PrefixSpace final : public PreTokenizer {
 public:
  void split(const Piece& piece, Pieces& out) const override {
    if (piece.text.starts_with(' ')) {
      out.list.push_back(piece);
    } else {
      out.list.push_back({out.written.emplace_back(" " + std::string(piece.text)), piece.at_start});
    }
  }
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void split(const Piece& piece, Pieces& out) const override {
    std::string& text = out.written.emplace_back();
    text.reserve(piece.text.size() * 2 + replacement_.size());
    const bool may = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start);
    if (may && !piece.text.starts_with(' ') && !piece.text.starts_with(replacement_)) text = replacement_;
    for (const char c : piece.text) {
      if (c == ' ')
        text += replacement_;
      else
        text += c;
    }
    const Piece whole{text, piece.at_start};
    if (!split_) {
      out.list.push_back(whole);
      return;
    }
    std::vector<Match> matches;
    for (std::size_t at = text.find(replacement_); at != std::string::npos; at = text.find(replacement_, at + 1)) {
      matches.push_back({at, at + replacement_.size()});
    }
    split_at_matches(whole, matches, SplitBehavior::kMergedWithNext, false, out);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

}  // namespace

PreTokenizerPtr make_digits(bool individual) {
  return std::make_unique<ByKind>(is_digit, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}
PreTokenizerPtr make_whitespace_split() { return std::make_unique<ByKind>(is_space, SplitBehavior::kRemoved); }
PreTokenizerPtr make_whitespace() { return std::make_unique<Words>(); }
PreTokenizerPtr make_punctuation(SplitBehavior behavior) { return std::make_unique<ByKind>(is_punctuation, behavior); }
PreTokenizerPtr make_bert() {
  std::vector<PreTokenizerPtr> steps;
  steps.push_back(make_whitespace_split());
  steps.push_back(make_punctuation(SplitBehavior::kIsolated));
  return make_sequence(std::move(steps));
}
PreTokenizerPtr make_delimiter_split(char32_t delimiter) { return std::make_unique<Delimiter>(delimiter); }
PreTokenizerPtr make_fixed_length(std::size_t characters) { return std::make_unique<FixedLength>(characters); }
PreTokenizerPtr make_prefix_space() { return std::make_unique<PrefixSpace>(); }
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

}  // namespace magister
