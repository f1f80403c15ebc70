// Writes a string in JSON. Uses standard types only and is inline, because the plug-in of Arrow's library writes
// records with it, too.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// Appends `text` in quotes, its bytes unchanged except for the escapes that JSON requires (RFC 8259, section 7).
inline void append_json_text(std::string& json, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  json += '"';
  std::size_t plain = 0;  // beginning of the bytes that need no escape
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json.append(text.substr(plain, i - plain));
    plain = i + 1;
    if (c >= 0x20) {
      json += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      json += "\\n";
    } else {
      json += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
    }
  }
  json.append(text.substr(plain));
  json += '"';
}

}  // namespace magister
