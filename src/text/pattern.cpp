// PCRE2. Constructs that it reads differently than the reference's engine are rewritten before compiling: \s (without
// U+180E), \w (with marks), categories (of a newer Unicode), $ and ^. A pattern that cannot be rewritten is refused.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr const char* kSpaces =
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

struct NewerCategory {
  std::string_view name;
  const char* ranges;
};

#include "text/pattern_tables.inc"

// A category as parts of a class; empty: not in the table, the pattern is refused.
std::string category(std::string_view name) {
  for (const NewerCategory& newer : kNewerCategories) {
    if (newer.name == name) return fmt::format("\\p{{{}}}{}", name, newer.ranges);
  }
  // PCRE2 matches script extensions, the reference scripts.
  return name == "Han" ? "\\p{sc:Han}" : "";
}

class Translation {
 public:
  Translation(const std::string& pattern, const std::string& source, Pattern::Syntax syntax)
      : pattern_(pattern), source_(source), ruby_(syntax == Pattern::Syntax::kOniguruma) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_++];
      if (c == '\\' && at_ < pattern_.size()) {
        escape();
      } else if (in_class_) {
        inside(c);
      } else {
        outside(c);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ExitCode::kData,
         "{}: the pattern \"{}\" has {}, which is not known here (the text might be split differently than the model "
         "needs); use a supported tokenizer",
         source_, printable(pattern_), what);
  }
  void inside(char c) {
    if (ruby_ && c == '[') refuse("a set inside a set");
    if (ruby_ && c == '&' && pattern_.compare(at_, 1, "&") == 0) refuse("&& in a set");
    if (c == ']') in_class_ = false;
    out_ += c;
  }
  void outside(char c) {
    out_ += c;
    if (c == '[') {
      in_class_ = true;
      if (pattern_.compare(at_, 1, "^") == 0) out_ += pattern_[at_++];
    } else if (ruby_ && c == '$') {
      out_.replace(out_.size() - 1, 1, "(?=\\n|\\z)");
    } else if (ruby_ && c == '^') {
      out_.replace(out_.size() - 1, 1, "(?:\\A|(?<=\\n))");
    } else if (ruby_ && c == '}' && pattern_.compare(at_, 1, "+") == 0 && quantifier()) {
      refuse("a + after a count");  // repeats in Oniguruma, is possessive in PCRE2
    }
  }
  // Reports whether the closed braces are {n,m}, not \p{..}.
  bool quantifier() const {
    const std::size_t open = out_.rfind('{');
    return open != std::string::npos && open + 1 < out_.size() && out_[open + 1] >= '0' && out_[open + 1] <= '9' &&
           (open < 2 || out_.compare(open - 2, 2, "\\x") != 0);
  }
  void put(const std::string& parts, bool negated) {
    if (in_class_ && negated) refuse("a negated class in a set");
    out_ += in_class_ ? parts : (negated ? "[^" : "[") + parts + "]";
  }
  void escape() {
    const char c = pattern_[at_++];
    if (c == 's' || c == 'S') return put(kSpaces, c == 'S');
    if (c == 'd' || c == 'D') return put(category("Nd"), c == 'D');
    if (c == 'w' || c == 'W') {
      // Oniguruma's \w contains circled letters and, outside a set, six characters of Latin 1.
      const char* const latin = in_class_ ? "" : "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
      return put(category("L") + category("M") + category("Nd") + category("Nl") + category("Pc") + latin +
                     "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}",
                 c == 'W');
    }
    if (c == 'p' || c == 'P') {
      const std::size_t close = pattern_.find('}', at_);
      if (pattern_.compare(at_, 1, "{") != 0 || close == std::string::npos) refuse("\\p without {}");
      const bool inverted = pattern_.compare(at_ + 1, 1, "^") == 0;
      const std::size_t begin = at_ + (inverted ? 2 : 1);
      const std::string parts = category(std::string_view(pattern_).substr(begin, close - begin));
      if (parts.empty()) refuse("the class \\p" + printable(pattern_.substr(at_, close + 1 - at_)));
      at_ = close + 1;
      return put(parts, (c == 'P') != inverted);
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter && std::string_view("rntxbBAzfv").find(c) == std::string_view::npos) {
      refuse(std::string("\\") + c);
    }
    out_ += '\\';
    out_ += c;
  }

  const std::string& pattern_;
  const std::string& source_;
  const bool ruby_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

struct Pattern::Code {
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code{nullptr, pcre2_code_free};
  std::string source;
};

Pattern::Pattern(const std::string& pattern, const std::string& source, Syntax syntax)
    : code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE at = 0;
  MAGISTER_CHECK(pattern.size() <= 65536, ExitCode::kData,
                 "{}: a pattern has {} bytes (no tokenizer's has); fetch the file "
                 "again",
                 source, pattern.size());
  const std::string rewritten = Translation(pattern, source, syntax).run();
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_DOLLAR_ENDONLY, &error, &at,
                                  nullptr));
  code_->source = source;
  if (code_->code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(error, text, sizeof text);
    fail(ExitCode::kData,
         "{}: the pattern \"{}\" cannot be compiled: {} at {} (the text cannot be split as the model needs); "
         "fetch the file again",
         source, printable(pattern), reinterpret_cast<const char*>(text), at);
  }
  pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;

void Pattern::find_all(std::string_view text, std::vector<Match>& matches) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code_->code.get(), nullptr), pcre2_match_data_free);
  for (std::size_t at = 0; at < text.size();) {
    const int found = pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return;
    MAGISTER_CHECK(found > 0, ExitCode::kData,
                   "{}: its pattern gives up on a text of {} bytes at byte {} (PCRE2 error {}; the "
                   "text cannot be split as the model needs); shorten the record",
                   code_->source, text.size(), at, found);
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
    if (place[1] > place[0]) {
      matches.push_back({place[0], place[1]});
      at = place[1];
    } else {
      ++at;  // an empty match: go on at the next code point
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    }
  }
}

}  // namespace magister
