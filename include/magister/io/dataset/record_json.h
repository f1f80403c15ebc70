// A record's line as a JSON document with all digits of all numbers. Integers beyond 64 bits (hashes, ids) and numbers
// that no double holds have no type in JSON libraries. They become binary values that hold their spelling: a field that
// nobody reads costs nothing, and a field in a prompt is written digit by digit. ChatTemplate knows these values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace magister {

// Discarded (is_discarded()) if the text is not JSON. Objects keep the order of their keys; of equal keys the last one
// counts.
nlohmann::ordered_json parse_record(std::string_view text);

// The document on one line, which parse_record reads again; bytes that are not UTF-8 become U+FFFD.
std::string record_text(const nlohmann::ordered_json& record);

}  // namespace magister
