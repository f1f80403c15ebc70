// Base64 (RFC 4648), as tokenizer files write bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace magister {

// Nothing when the text is not base64 with its padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace magister
