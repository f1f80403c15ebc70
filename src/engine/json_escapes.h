// The state of an escape inside a JSON string. Only the short escapes and the \u00XX of the table below are allowed, so
// a name has no second spelling by other escapes, no half of a surrogate pair occurs, and an escape is one character.
// U+007F alone has two spellings: the library writes it as an escape in const and enum, and json.dumps as it is.
#pragma once

#include <cstdint>
#include <string_view>

namespace magister {

enum Escape : std::uint8_t {
  kPlain,
  kBackslash,
  kU,
  kU0,
  kU00,
  kU000,
  kU001,
  kU007,
  kNumEscapes,
  kBarred = kNumEscapes
};

inline Escape after(Escape state, char c) {
  const auto one_of = [c](std::string_view chars) { return chars.find(c) != std::string_view::npos; };
  switch (state) {
    case kPlain:
      return c == '\\' ? kBackslash : kPlain;
    case kBackslash:
      return c == 'u' ? kU : one_of("\"\\bfnrt") ? kPlain : kBarred;
    case kU:
      return c == '0' ? kU0 : kBarred;
    case kU0:
      return c == '0' ? kU00 : kBarred;
    case kU00:
      return c == '0' ? kU000 : c == '1' ? kU001 : c == '7' ? kU007 : kBarred;
    case kU000:
      return one_of("01234567bef") ? kPlain : kBarred;
    case kU001:
      return one_of("0123456789abcdef") ? kPlain : kBarred;
    case kU007:
      return c == 'f' ? kPlain : kBarred;
    default:
      return kBarred;
  }
}

inline Escape after(Escape state, std::string_view bytes) {
  for (const char c : bytes) {
    state = after(state, c);
    if (state == kBarred) break;
  }
  return state;
}

}  // namespace magister
