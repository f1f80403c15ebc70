// What users of other programs type, and what does it here: the one table of words whose meaning is not that of another key in the same place
// (those are ConfigNode::also_called()).
#pragma once

#include <string>
#include <string_view>

namespace magister {

// What to do instead, for the end of a message ("here that is layout.devices: [0, 1]"); empty: the word is not in the table.
std::string foreign_key(std::string_view key);
std::string foreign_command(std::string_view command);
// "--resume"; an option that is a key's word ("--gpus") is answered as the key is.
std::string foreign_option(std::string_view option);
// Of a value that a key cannot have: `key` is the last part of its path.
std::string foreign_value(std::string_view key, std::string_view value);
// Of a model's path where nothing stands: a short name that other programs resolve, or an end that asks for a quantisation.
std::string foreign_model(std::string_view path);

}  // namespace magister
