// The command line, read by the one option table (src/app/option_table.cpp). CLI11 splits it; the messages are ours.
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
  // The text of an option, or fallback if it is not given.
  std::string option(const std::string& name, const std::string& fallback = {}) const;
  // The value of an option as a whole number in [least, most], or fallback if it is not given; Error(kUsage) for other
  // text.
  long long number(const std::string& name, long long fallback, long long least, long long most) const;
  // Empty if an optional positional is not given.
  std::string positional(const std::string& name) const;
  const std::vector<std::string>& rest(const std::string& name) const { return positionals.at(name); }
};

// arguments: without the program's name. Throws Error(kUsage) that names the nearest command or option.
// "COMMAND --help" gives command "--help" with COMMAND as positional "COMMAND".
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace magister
