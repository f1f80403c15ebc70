// The command line, read after the one option table (src/app/option_table.cpp). CLI11 splits it; the messages are ours.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace magister {

struct CommandLine {
  // A command of the table, or "--version", "--help", "--man", "--completion".
  std::string command;
  std::set<std::string> switches;                               // "--fresh"
  std::map<std::string, std::string> options;                   // "--max-wall" -> "01:00:00"
  std::map<std::string, std::vector<std::string>> positionals;  // "FILE.yaml" -> {"a.yaml"}

  bool has(const std::string& name) const { return switches.count(name) != 0; }
  // The text of an option, or fallback.
  std::string option(const std::string& name, const std::string& fallback = {}) const;
  // A whole number of an option in [least, most]; Error(kUsage) for anything else.
  long long number(const std::string& name, long long fallback, long long least, long long most) const;
  // Empty when an optional one is not given.
  std::string positional(const std::string& name) const;
  const std::vector<std::string>& rest(const std::string& name) const { return positionals.at(name); }
};

// arguments without the program's name. Throws Error(kUsage), naming the nearest command or option.
// "COMMAND --help" gives command "--help" with COMMAND as positional "COMMAND".
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace magister
