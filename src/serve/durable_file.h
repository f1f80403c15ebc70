// A file that is on the disk when the function returns.
#pragma once

#include <string>

namespace magister {

// Replaces the file in one step: written under another name, synced, renamed. Throws Error(kInputOutput). Local.
void write_durably(const std::string& path, const std::string& text);

}  // namespace magister
