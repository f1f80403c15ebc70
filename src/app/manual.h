// --help, the manual page and the shell completions, all generated from the option table.
#pragma once

#include <string>

namespace magister {

struct CommandEntry;

std::string help_text();
std::string help_text(const CommandEntry& command);
// One line: "magister run FILE.yaml [key.path=value ...] [--max-wall HH:MM:SS] ..."
std::string usage_line(const CommandEntry& command);
std::string man_page();
std::string bash_completion();
std::string zsh_completion();

}  // namespace magister
