// The one table of commands and options. The parser, --help, the man page and the shell completions are all made from
// it, so they cannot disagree. It is an INTERFACE of the program: rename or remove an entry only with a line in
// CHANGELOG.md.
#pragma once

#include <span>

#include "magister/core/error.h"

namespace magister {

struct Invocation;  // app/commands.h

struct OptionEntry {
  const char* name;      // "--max-wall"
  const char* argument;  // "HH:MM:SS"; nullptr: a switch
  const char* help;
  const char* short_name = nullptr;  // "-q"
};

struct PositionalEntry {
  enum class Count { kOne, kOptional, kMany };  // kMany: none or more, always last
  const char* name;                             // "FILE.yaml"
  Count count;
  const char* help;
};

struct CommandEntry {
  const char* name;
  ExitCode (*function)(Invocation& call);
  const char* help;  // one line
  std::span<const PositionalEntry> positionals;
  std::span<const OptionEntry> options;
};

std::span<const CommandEntry> all_commands();
// Options without a command: --help, --version ...
std::span<const OptionEntry> global_options();
const CommandEntry* find_command(const char* name);

struct ExitCodeEntry {
  int code;
  const char* meaning;
};
std::span<const ExitCodeEntry> exit_codes();

}  // namespace magister
