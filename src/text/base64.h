// Base64 (RFC 4648), as tokenizer files encode bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace magister {

// Nothing if the text is not padded base64.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace magister
