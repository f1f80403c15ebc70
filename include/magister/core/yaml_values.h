// The values of a YAML text that no reader asks for key by key (the head of a README.md of the Hugging Face hub), one after the other, with the keys and
// numbers of entries that lead to each. The limits and rules of an experiment hold (config.h): no anchors, tags or repeated keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace magister {

struct YamlValue {
  std::vector<std::string> path;  // {"configs", "0", "data_files", "1", "split"}
  std::string text;               // as written, without its quotes; empty where nothing stands
  bool quoted = false;            // "8" is a text, 8 a number
};

// In the order of the text; empty lists and maps give nothing. Throws Error(kData) with the first fault,
// "<source>:<line>:<column>: <problem> (<why>); <what to do>". Local.
std::vector<YamlValue> yaml_values(std::string_view text, const std::string& source);

}  // namespace magister
