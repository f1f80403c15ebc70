// Builds one CLI11 parser per command from the table; arguments that CLI11 does not know are left over, and our message
// names them.
// --help, --version, --man, --completion and --print-config without a command are handled before.
#include "magister/app/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "app/manual.h"
#include "app/option_table.h"
#include "magister/core/error.h"
#include "magister/core/foreign_names.h"

namespace magister {

namespace {

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const CommandEntry& command : all_commands()) names.emplace_back(command.name);
  return names;
}

std::vector<std::string> option_names(std::span<const OptionEntry> options) {
  std::vector<std::string> names;
  for (const OptionEntry& option : options) names.emplace_back(option.name);
  return names;
}

// foreign: what an option or command of another program is called here; empty: the word is not known from one.
[[noreturn]] void unknown(const std::string& what, const std::string& word, const std::vector<std::string>& known,
                          const std::string& help, const std::string& foreign = {}) {
  const std::string nearest = foreign.empty() ? nearest_name(word, known) : std::string();
  fail(ExitCode::kUsage, "unknown {} {} (known: {}); {}", what, printable(word, 60), join(known),
       !foreign.empty()  ? foreign
       : nearest.empty() ? "see " + help
                         : "did you mean " + nearest + "?");
}

// If a command takes an experiment's keys, an option that resembles none of ours is probably such a key.
std::string advice_for_option(const CommandEntry& command, const std::string& option) {
  if (const std::string foreign = foreign_option(option); !foreign.empty()) return foreign;
  const bool takes_keys =
      std::any_of(command.positionals.begin(), command.positionals.end(),
                  [](const PositionalEntry& one) { return std::string_view(one.name).starts_with("key.path"); });
  if (!takes_keys || !nearest_name(option, option_names(command.options)).empty()) return {};
  return "a key of the experiment is written without dashes, key.path=value (configs/README.md has all), else see "
         "magister " +
         std::string(command.name) + " --help";
}

// Reports CLI11's problem in our form of messages. The names in its text are ours, since they come from the table.
[[noreturn]] void refuse(const CommandEntry& command, const std::string& problem) {
  fail(ExitCode::kUsage, "{} (usage: {}); see magister {} --help", printable(problem), usage_line(command),
       command.name);
}

CommandLine parse_command(const CommandEntry& command, std::vector<std::string> arguments) {
  CLI::App parser{command.help, command.name};
  parser.set_help_flag();
  parser.allow_extras();
  CommandLine line;
  line.command = command.name;
  std::map<std::string, bool> switches;
  for (const OptionEntry& option : command.options) {
    const std::string names =
        option.short_name == nullptr ? option.name : fmt::format("{},{}", option.short_name, option.name);
    if (option.argument == nullptr) {
      parser.add_flag(names, switches[option.name])->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      parser.add_option(names, line.options[option.name])->type_name(option.argument);
    }
  }
  for (const PositionalEntry& positional : command.positionals) line.positionals[positional.name] = {};
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    parser.parse(arguments);
  } catch (const CLI::ParseError& error) {
    refuse(command, error.what());
  }
  // Positionals are assigned here, since CLI11 would split a value "[a, b]" into several.
  std::vector<std::string> rest = parser.remaining();
  for (const std::string& word : rest) {
    const std::string name = word.substr(0, word.find('='));
    if (word.size() > 1 && word[0] == '-')
      unknown("option", name, option_names(command.options), fmt::format("magister {} --help", command.name),
              advice_for_option(command, name));
  }
  std::size_t next = 0;
  for (const PositionalEntry& positional : command.positionals) {
    if (positional.count == PositionalEntry::Count::kMany) {
      line.positionals[positional.name].assign(rest.begin() + static_cast<std::ptrdiff_t>(std::min(next, rest.size())),
                                               rest.end());
      next = rest.size();
    } else if (next < rest.size()) {
      line.positionals[positional.name] = {rest[next++]};
    } else if (positional.count == PositionalEntry::Count::kOne) {
      refuse(command, fmt::format("{} is missing", positional.name));
    }
  }
  if (next < rest.size()) refuse(command, fmt::format("one argument too many: {}", rest[next]));
  for (auto& [name, on] : switches) {
    if (on) line.switches.insert(name);
  }
  for (auto at = line.options.begin(); at != line.options.end();) {
    at = parser.get_option(at->first)->count() == 0 ? line.options.erase(at) : std::next(at);
  }
  return line;
}

}  // namespace

std::string CommandLine::option(const std::string& name, const std::string& fallback) const {
  const auto at = options.find(name);
  return at == options.end() ? fallback : at->second;
}

std::string CommandLine::positional(const std::string& name) const {
  const auto at = positionals.find(name);
  return at == positionals.end() || at->second.empty() ? std::string() : at->second.front();
}

long long CommandLine::number(const std::string& name, long long fallback, long long least, long long most) const {
  const auto at = options.find(name);
  if (at == options.end()) return fallback;
  const std::string& text = at->second;
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    fail(ExitCode::kUsage, "{} {} is not possible (a whole number from {} to {} is expected); see magister {} --help",
         name, printable(text, 60), least, most, command);
  }
  return value;
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    fail(ExitCode::kUsage, "no command (known: {}); see magister --help", join(command_names()));
  }
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  const std::string& first = arguments.front();
  CommandLine line;
  if (const CommandEntry* command = find_command(first.c_str())) {
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    const auto end_of_options = std::find(rest.begin(), rest.end(), "--");
    if (std::any_of(rest.begin(), end_of_options, is_help)) {
      line.command = "--help";
      line.positionals["COMMAND"] = {first};
      return line;
    }
    return parse_command(*command, rest);
  }
  std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  line.command = is_help(first) ? "--help" : first;
  if (first == "--print-config") {
    if (!rest.empty() && rest.front() == "run") rest.erase(rest.begin());
    rest.emplace_back("--print-config");
    return parse_command(*find_command("run"), rest);
  }
  if (first == "--completion" && rest.size() == 1) {
    if (rest[0] != "bash" && rest[0] != "zsh") unknown("shell", rest[0], {"bash", "zsh"}, "magister --help");
    line.options["--completion"] = rest[0];
    return line;
  }
  if (first == "--version" && rest == std::vector<std::string>{"--json"}) {
    line.switches.insert("--json");
    return line;
  }
  if (line.command == "--help" && rest.size() == 1 && find_command(rest[0].c_str()) != nullptr) {
    line.positionals["COMMAND"] = rest;
    return line;
  }
  const std::vector<std::string> globals = option_names(global_options());
  if (std::find(globals.begin(), globals.end(), line.command) == globals.end()) {
    if (first.starts_with('-')) unknown("option", first, globals, "magister --help", foreign_option(first));
    const bool experiment = first.ends_with(".yaml") || first.ends_with(".yml");
    unknown("command", first, command_names(), "magister --help",
            experiment ? "did you mean magister run " + printable(first, 60) + "?" : foreign_command(first));
  }
  if (first == "--completion") fail(ExitCode::kUsage, "--completion needs one shell (known: bash, zsh); name it");
  if (!rest.empty()) {
    fail(ExitCode::kUsage, "{} takes no {} (nothing would be done with it); remove it", printable(first),
         printable(rest[0], 60));
  }
  return line;
}

}  // namespace magister
