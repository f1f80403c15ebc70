// A record's line as a document, with all digits of all numbers. Whole numbers beyond 64 bits (hashes, ids) and numbers that no double
// holds have no type in JSON libraries: they are binary values that hold their spelling, so that a field which nobody reads costs
// nothing and one that is written in a prompt is written digit by digit. ChatTemplate knows these values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace magister {

// Discarded (is_discarded()) where the text is no JSON. Objects keep the order of their keys; of equal keys the last one counts.
nlohmann::ordered_json parse_record(std::string_view text);

// The document on one line, as parse_record reads it; bytes that are no UTF-8 become U+FFFD.
std::string record_text(const nlohmann::ordered_json& record);

}  // namespace magister
