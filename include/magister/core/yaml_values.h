// All values of a YAML text with the keys and list indices that lead to each. For texts that are not read key by key
// (the head of a README.md of the Hugging Face hub). The limits and rules of an experiment hold (config.h): no anchors,
// tags or repeated keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

struct YamlValue {
  std::vector<std::string> path;  // {"configs", "0", "data_files", "1", "split"}
  std::string text;               // as written, without its quotes; empty for a key without a value
  bool quoted = false;            // "8" is a text, 8 a number
  std::uint64_t line = 0;         // from 1
};

// Values in the order of the text; empty lists and maps give none. Throws Error(kData) with the first fault,
// "<source>:<line>:<column>: <problem> (<why>); <what to do>". Local.
std::vector<YamlValue> yaml_values(std::string_view text, const std::string& source);

}  // namespace magister
