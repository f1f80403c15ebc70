// PCRE2. Its \s also takes U+180E, which the reference's engine does not: \s and \S are written out before compiling.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr const char* kSpaces =
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

std::string rewrite_spaces(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 >= pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char next = pattern[++i];
    if (next == 's') {
      out += in_class ? kSpaces : "[" + std::string(kSpaces) + "]";
    } else if (next == 'S' && !in_class) {
      out += "[^" + std::string(kSpaces) + "]";
    } else {
      out += c;
      out += next;
    }
  }
  return out;
}

}  // namespace

struct Pattern::Code {
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code{nullptr, pcre2_code_free};
  std::string source;
};

Pattern::Pattern(const std::string& pattern, const std::string& source) : code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string rewritten = rewrite_spaces(pattern);
  MAGISTER_CHECK(pattern.size() <= 65536, ExitCode::kData,
                 "{}: a pattern has {} bytes (no tokenizer's has); fetch the file "
                 "again",
                 source, pattern.size());
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &at, nullptr));
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
      ++at;  // an empty match: on to the next code point
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    }
  }
}

}  // namespace magister
