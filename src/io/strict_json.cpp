// nlohmann's parser is iterative, so depth costs no stack. It takes a NUL byte for the end of the text, so NUL bytes
// are searched first. Its messages are shortened to the reason.
#include "io/strict_json.h"

#include <cstdint>
#include <cstring>

#include "magister/core/error.h"
#include "magister/core/utf8.h"

namespace magister {
namespace {

constexpr std::size_t kFewNames = 16;

// Turns "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while parsing value - invalid
// literal; last read: '...'" into "syntax error while parsing value - invalid literal".
std::string reason_of(const std::string& what) {
  std::string reason = what;
  if (const auto end = reason.find("] "); reason.starts_with('[') && end != std::string::npos) reason.erase(0, end + 2);
  if (const auto colon = reason.find(": "); reason.starts_with("parse error at") && colon != std::string::npos) {
    reason.erase(0, colon + 2);
  }
  if (const auto last = reason.find("; last read: "); last != std::string::npos) {
    const auto expected = reason.find("; expected ", last);
    reason = reason.substr(0, last) + (expected == std::string::npos ? "" : reason.substr(expected));
  }
  return reason;
}

}  // namespace

bool NameSet::insert(const std::string& name) {
  for (const std::string& seen : few_) {
    if (seen == name) return false;
  }
  if (few_.size() < kFewNames) {
    few_.push_back(name);
    return true;
  }
  return more_.insert(name).second;
}

void NameSet::clear() {
  few_.clear();
  if (!more_.empty()) more_ = {};  // clear() would walk its buckets for every later object
}

const char* StrictJson::name_of(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a truth value";
    case Kind::kWhole:
      return "a number";
    case Kind::kFraction:
      return "a number with a fraction or an exponent";
    case Kind::kText:
      return "a text";
    case Kind::kObject:
      return "an object";
    case Kind::kArray:
      return "a list";
  }
  return "?";
}

void StrictJson::read(std::string_view text) {
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    fail(ExitCode::kData, "{}: holds a NUL byte at byte {} (no JSON text does; the file is damaged); write it again",
         where_, nul + 1);
  }
  if (const std::size_t bad = find_bad_utf8(text); bad != text.size()) {
    fail(ExitCode::kData, "{}: not valid UTF-8 at byte {} (the text would have to be guessed); convert it to UTF-8",
         where_, bad + 1);
  }
  large_ = LargeNumbersInOrder();
  begins_again_ = false;
  read_once(text);
  if (!begins_again_) return;
  WithoutLargeNumbers finite = without_large_numbers(text);
  large_ = LargeNumbersInOrder(std::move(finite.numbers));
  depth_ = 0;
  read_once(finite.text);
}

void StrictJson::read_once(std::string_view text) {
  nlohmann::json_sax<nlohmann::json>* const events = this;
  nlohmann::json::sax_parse(text.begin(), text.end(), events);
}

void StrictJson::restart(const std::string& where) {
  where_ = where;
  depth_ = 0;
}

bool StrictJson::number_unsigned(number_unsigned_t value) {
  if (const std::string* const large = large_.next()) {
    std::string text = *large;
    on_value(is_whole_spelling(text) ? Kind::kWhole : Kind::kFraction, text);
  } else {
    on_whole(false, value);
  }
  return true;
}

void StrictJson::on_whole(bool negative, std::uint64_t magnitude) {
  std::string digits = (negative ? "-" : "") + std::to_string(magnitude);
  on_value(Kind::kWhole, digits);
}

bool StrictJson::number_float(number_float_t, const string_t& digits) {
  large_.next();
  std::string text = digits;
  return on_value(is_whole_spelling(text) ? Kind::kWhole : Kind::kFraction, text), true;
}

bool StrictJson::open(Kind kind) {
  std::string none;
  on_value(kind, none);
  MAGISTER_CHECK(++depth_ <= max_depth_, ExitCode::kData,
                 "{}: nested deeper than {} (no such file needs that); write it "
                 "again",
                 where_, max_depth_);
  if (levels_.size() <= static_cast<std::size_t>(depth_)) levels_.emplace_back();
  Level& level = levels_[static_cast<std::size_t>(depth_)];
  level.key.clear();
  level.names.clear();
  return true;
}

bool StrictJson::close() {
  --depth_;
  on_end();
  return true;
}

bool StrictJson::key(string_t& name) {
  Level& level = levels_[static_cast<std::size_t>(depth_)];
  MAGISTER_CHECK(level.names.insert(name), ExitCode::kData,
                 "{}: \"{}\" is there twice in one object (it is ambiguous); "
                 "remove one",
                 where_, printable(name, 80));
  level.key = name;
  on_key(name);
  return true;
}

bool StrictJson::parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
  if (error.id == kNumberTooLarge && !begins_again_ && on_begin_again()) {
    begins_again_ = true;
    return false;
  }
  fail(ExitCode::kData, "{}: not valid JSON at byte {}: {} (it cannot be read); fix it", where_, position,
       printable(reason_of(error.what())));
}

std::size_t find_bad_utf8(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    while (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080ull) != 0) break;
      at += 8;
    }
    if (at == text.size()) break;
    const std::size_t length = utf8_sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return text.size();
}

}  // namespace magister
