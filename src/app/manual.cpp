// Plain text for terminals, roff for man(1) (macros of groff_man(7)), and completion functions for bash and zsh. No
// command or option is named here; all come from the table.
#include "app/manual.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/option_table.h"

namespace magister {

namespace {

std::string shown(const OptionEntry& option) {
  const std::string name =
      option.short_name == nullptr ? option.name : fmt::format("{}, {}", option.short_name, option.name);
  return option.argument == nullptr ? name : fmt::format("{} {}", name, option.argument);
}

// Escapes hyphens, because roff would print a typographic hyphen, which a shell does not understand.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-' || c == '\\') out += '\\';
    if ((c == '.' || c == '\'') && out.empty()) out += "\\&";
    out += c;
  }
  return out;
}

// Escapes a text for single quotes of a shell.
std::string shell_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

// Escapes the characters that zsh's _describe and _arguments interpret.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return shell_quoted(out);
}

}  // namespace

std::string usage_line(const CommandEntry& command) {
  std::string line = fmt::format("magister {}", command.name);
  for (const PositionalEntry& positional : command.positionals) {
    const char* const dots = positional.count == PositionalEntry::Count::kMany ? " ..." : "";
    line += positional.count == PositionalEntry::Count::kOne ? fmt::format(" {}", positional.name)
                                                             : fmt::format(" [{}{}]", positional.name, dots);
  }
  for (const OptionEntry& option : command.options) line += fmt::format(" [{}]", shown(option));
  return line;
}

std::string help_text() {
  std::string out =
      "magister: offline work with large language models on MPI ranks, from one YAML experiment to HDF5 files\n\n"
      "usage: [mpirun -np N] magister COMMAND ...\n\ncommands:\n";
  for (const CommandEntry& command : all_commands()) out += fmt::format("  {:<10} {}\n", command.name, command.help);
  out += "\noptions:\n";
  for (const OptionEntry& option : global_options()) out += fmt::format("  {:<20} {}\n", shown(option), option.help);
  out += "\nexit codes:\n";
  for (const ExitCodeEntry& exit : exit_codes()) out += fmt::format("  {:<3} {}\n", exit.code, exit.meaning);
  return out;
}

std::string help_text(const CommandEntry& command) {
  std::string out = fmt::format("magister {}: {}\n\nusage: {}\n", command.name, command.help, usage_line(command));
  if (!command.positionals.empty()) out += "\narguments:\n";
  for (const PositionalEntry& positional : command.positionals) {
    out += fmt::format("  {:<20} {}\n", positional.name, positional.help);
  }
  if (!command.options.empty()) out += "\noptions:\n";
  for (const OptionEntry& option : command.options) out += fmt::format("  {:<20} {}\n", shown(option), option.help);
  return out;
}

std::string man_page() {
  std::string out = fmt::format(".TH MAGISTER 1 \"\" \"magister {}\" \"User Commands\"\n", MAGISTER_VERSION);
  out += ".SH NAME\nmagister \\- offline work with large language models on MPI ranks\n.SH SYNOPSIS\n";
  for (const CommandEntry& command : all_commands()) {
    out += fmt::format(".B {}\n.br\n", roff(usage_line(command)));
  }
  out +=
      ".SH DESCRIPTION\nOne YAML experiment is executed by any number of MPI ranks into HDF5 files. A run that was "
      "stopped or killed continues when the same command is given again; the file is the same for any number of "
      "ranks.\n.SH COMMANDS\n";
  for (const CommandEntry& command : all_commands()) {
    out += fmt::format(".SS {}\n{}\n", roff(command.name), roff(command.help));
    for (const PositionalEntry& positional : command.positionals) {
      out += fmt::format(".TP\n.I {}\n{}\n", roff(positional.name), roff(positional.help));
    }
    for (const OptionEntry& option : command.options) {
      out += fmt::format(".TP\n.B {}\n{}\n", roff(shown(option)), roff(option.help));
    }
  }
  out += ".SH OPTIONS\n";
  for (const OptionEntry& option : global_options()) {
    out += fmt::format(".TP\n.B {}\n{}\n", roff(shown(option)), roff(option.help));
  }
  out += ".SH EXIT STATUS\n";
  for (const ExitCodeEntry& exit : exit_codes()) out += fmt::format(".TP\n.B {}\n{}\n", exit.code, roff(exit.meaning));
  return out;
}

std::string bash_completion() {
  std::string commands, cases;
  for (const CommandEntry& command : all_commands()) {
    commands += fmt::format("{} ", command.name);
    std::string options = "--help";
    for (const OptionEntry& option : command.options) options += fmt::format(" {}", option.name);
    cases += fmt::format("    {}) words='{}' ;;\n", command.name, shell_quoted(options));
  }
  for (const OptionEntry& option : global_options()) commands += fmt::format("{} ", option.name);
  return fmt::format(
      "_magister() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} words i\n"
      "  words='{}'\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${{COMP_WORDS[i]}} in\n{}"
      "    esac\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)) || [[ $word == -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
      "  else\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _magister magister\n",
      shell_quoted(commands), cases);
}

std::string zsh_completion() {
  std::string commands, cases;
  for (const CommandEntry& command : all_commands()) {
    commands += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.help));
    std::string arguments;
    for (const OptionEntry& option : command.options) {
      arguments += option.argument == nullptr
                       ? fmt::format(" '{}[{}]'", option.name, zsh_text(option.help))
                       : fmt::format(" '{}[{}]:{}:'", option.name, zsh_text(option.help), zsh_text(option.argument));
    }
    cases += fmt::format("    {}) _arguments{} '*:file:_files' ;;\n", command.name, arguments);
  }
  std::string globals;
  for (const OptionEntry& option : global_options()) {
    globals += fmt::format("    '{}:{}'\n", option.name, zsh_text(option.help));
  }
  return fmt::format(
      "#compdef magister\n_magister() {{\n  local -a entries=(\n{}{}  )\n"
      "  if ((CURRENT == 2)); then\n    _describe command entries\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n"
      "  case $command in\n{}    *) _files ;;\n  esac\n}}\ncompdef _magister magister\n",
      commands, globals, cases);
}

}  // namespace magister
