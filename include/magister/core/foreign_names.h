// Names that users of other programs type, and the equivalent here. Names that other programs give to a key of the same
// map are in ConfigNode::also_called() instead.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// Returns what to do instead, for the end of a message ("here that is layout.devices: [0, 1]"); empty: the name is not
// in the table.
std::string foreign_key(std::string_view key);
std::string foreign_command(std::string_view command);
// For an option such as "--resume". An option that has the name of a key ("--gpus") gets the advice for that key.
std::string foreign_option(std::string_view option);
// For a value that a key cannot have; `key` is the last part of the key's path.
std::string foreign_value(std::string_view key, std::string_view value);
// For a model path that does not exist: a short name that other programs resolve, or a suffix that asks for
// quantisation.
std::string foreign_model(std::string_view path);

}  // namespace magister
