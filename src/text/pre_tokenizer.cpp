// Splits a text at the matches of a pattern, by one of five behaviours.
#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace magister {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

struct Part {
  std::size_t begin, end;
  bool match;
};

// Joins a match with the piece after it, unless that is a match too.
std::vector<Part> joined_with_next(const std::vector<Part>& parts) {
  std::vector<Part> joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].match && i + 1 < parts.size() && !parts[i + 1].match) {
      joined.push_back({parts[i].begin, parts[i + 1].end, false});
      ++i;
    } else {
      joined.push_back(parts[i]);
    }
  }
  return joined;
}

std::vector<Part> joined_with_previous(const std::vector<Part>& parts) {
  std::vector<Part> joined;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.match && !after_match && !joined.empty()) {
      joined.back().end = part.end;
    } else {
      joined.push_back(part);
    }
    after_match = part.match;
  }
  return joined;
}

}  // namespace

void split_at_matches(const Piece& piece, const std::vector<Match>& matches, SplitBehavior behavior, bool invert,
                      Pieces& out) {
  const std::string_view text = piece.text;
  std::vector<Part> parts;
  const auto add = [&](std::size_t begin, std::size_t end, bool match) {
    if (begin == end || (match && behavior == SplitBehavior::kRemoved)) return;
    if (behavior == SplitBehavior::kContiguous && !parts.empty() && parts.back().match == match) {
      parts.back().end = end;
    } else {
      parts.push_back({begin, end, match});
    }
  };
  std::size_t at = 0;
  for (const Match& match : matches) {
    add(at, match.begin, invert);
    add(match.begin, match.end, !invert);
    at = match.end;
  }
  add(at, text.size(), invert);
  if (behavior == SplitBehavior::kMergedWithPrevious) parts = joined_with_previous(parts);
  if (behavior == SplitBehavior::kMergedWithNext) parts = joined_with_next(parts);
  for (const Part& part : parts) {
    out.list.push_back({text.substr(part.begin, part.end - part.begin), piece.at_start && part.begin == 0});
  }
}

namespace {

class Split final : public PreTokenizer {
 public:
  Split(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& source,
        Pattern::Syntax syntax)
      : pattern_(pattern, source, syntax), behavior_(behavior), invert_(invert) {}
  void split(const Piece& piece, Pieces& out) const override {
    std::vector<Match> matches;
    pattern_.find_all(piece.text, matches);
    split_at_matches(piece, matches, behavior_, invert_, out);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// The well-known patterns match every part of a text, so the isolated pieces are exactly the matches.
class WordScanner final : public PreTokenizer {
 public:
  enum class Kind { kGpt2, kLlama3, kQwen2 };
  explicit WordScanner(Kind kind) : kind_(kind) {}

  void split(const Piece& piece, Pieces& out) const override {
    const std::string_view text = piece.text;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = kind_ == Kind::kGpt2 ? gpt2_end(text, at) : modern_end(text, at);
      out.list.push_back({text.substr(at, end - at), piece.at_start && at == 0});
      at = end;
    }
  }

 private:
  static char32_t value(std::string_view text, std::size_t at) { return code_point_at(text, at).value; }

  template <typename Is>
  static std::size_t run(std::string_view text, std::size_t at, const Is& is) {
    while (at < text.size()) {
      const CodePoint point = code_point_at(text, at);
      if (!is(point.value)) break;
      at += point.bytes;
    }
    return at;
  }
  static bool other(char32_t c) { return (char_class(c) & (kLetter | kNumber | kSpace)) == 0; }

  // Returns the end of 's 't 're 've 'm 'll 'd at `at`, else `at`. fold: in any case, and U+017F, which folds to s.
  static std::size_t contraction_end(std::string_view text, std::size_t at, bool fold) {
    const auto letter = [&](std::size_t i) -> char {
      if (i >= text.size()) return 0;
      const char c = text[i];
      return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    if (text[at] != '\'') return at;
    if (fold && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    const char a = letter(at + 1), b = letter(at + 2);
    if (a == 's' || a == 't') return at + 2;
    if ((a == 'r' || a == 'v') && b == 'e') return at + 3;
    if (a == 'm') return at + 2;
    if (a == 'l' && b == 'l') return at + 3;
    if (a == 'd') return at + 2;
    return at;
  }

  // \s+(?!\S)|\s+ : a run of spaces, without its last one if something follows.
  static std::size_t spaces_end(std::string_view text, std::size_t at) {
    std::size_t last = at, end = at;
    while (end < text.size()) {
      const CodePoint point = code_point_at(text, end);
      if (!is_space(point.value)) break;
      last = end;
      end += point.bytes;
    }
    return end == text.size() || last == at ? end : last;
  }

  static std::size_t gpt2_end(std::string_view text, std::size_t at) {
    if (const std::size_t end = contraction_end(text, at, false); end > at) return end;
    const std::size_t body = text[at] == ' ' ? at + 1 : at;
    if (body < text.size()) {
      const std::uint8_t kind = char_class(value(text, body));
      if (kind & kLetter) return run(text, body, is_letter);
      if (kind & kNumber) return run(text, body, is_number);
      if ((kind & kSpace) == 0) return run(text, body, other);
    }
    return spaces_end(text, at);
  }

  std::size_t modern_end(std::string_view text, std::size_t at) const {
    if (const std::size_t end = contraction_end(text, at, true); end > at) return end;
    const CodePoint first = code_point_at(text, at);
    const std::uint8_t kind = char_class(first.value);
    if (kind & kLetter) return run(text, at, is_letter);
    const bool newline = first.value == '\r' || first.value == '\n';
    if (!newline && (kind & kNumber) == 0) {
      const std::size_t next = at + first.bytes;
      if (next < text.size() && is_letter(value(text, next))) return run(text, next, is_letter);
    }
    if (kind & kNumber) {
      std::size_t end = at + first.bytes;
      for (int i = 1; kind_ == Kind::kLlama3 && i < 3 && end < text.size(); ++i) {
        const CodePoint point = code_point_at(text, end);
        if (!is_number(point.value)) break;
        end += point.bytes;
      }
      return end;
    }
    const std::size_t body = first.value == ' ' ? at + 1 : at;
    if (body < text.size() && other(value(text, body))) {
      const std::size_t end = run(text, body, other);
      return run(text, end, [](char32_t c) { return c == '\r' || c == '\n'; });
    }
    // \s*[\r\n]+ : up to the last line end in the run of spaces.
    const std::size_t end = run(text, at, is_space);
    for (std::size_t i = end; i > at; --i) {
      if (text[i - 1] == '\r' || text[i - 1] == '\n') return i;
    }
    return spaces_end(text, at);
  }

  Kind kind_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}
  void split(const Piece& piece, Pieces& out) const override {
    std::vector<Piece> before{piece};
    const std::size_t given = out.list.size();
    for (const PreTokenizerPtr& step : steps_) {
      out.list.resize(given);
      for (const Piece& part : before) step->split(part, out);
      if (&step != &steps_.back()) before.assign(out.list.begin() + static_cast<std::ptrdiff_t>(given), out.list.end());
    }
    if (steps_.empty()) out.list.push_back(piece);
  }

 private:
  std::vector<PreTokenizerPtr> steps_;
};

}  // namespace

PreTokenizerPtr make_split(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& source,
                           bool force_pcre2, Pattern::Syntax syntax) {
  const bool plain = !invert && behavior == SplitBehavior::kIsolated && !force_pcre2;
  // Some files write the same thing as "Removed" and inverted.
  const bool matches_kept = invert && behavior == SplitBehavior::kRemoved && !force_pcre2;
  if (plain || matches_kept) {
    if (pattern == kGpt2Pattern) return std::make_unique<WordScanner>(WordScanner::Kind::kGpt2);
    if (pattern == kLlama3Pattern) return std::make_unique<WordScanner>(WordScanner::Kind::kLlama3);
    if (pattern == kQwen2Pattern) return std::make_unique<WordScanner>(WordScanner::Kind::kQwen2);
  }
  return std::make_unique<Split>(pattern, behavior, invert, source, syntax);
}

PreTokenizerPtr make_sequence(std::vector<PreTokenizerPtr> steps) {
  if (steps.size() == 1) return std::move(steps.front());
  return std::make_unique<PreTokenizerSequence>(std::move(steps));
}

std::string escape_pattern(const std::string& literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::string_view("\\^$.|?*+()[]{}#- \t\n\r").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace magister
