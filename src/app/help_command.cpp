// help: the meaning of a key of an experiment, or of a command.
#include <fmt/format.h>

#include <algorithm>

#include "app/commands.h"
#include "app/key_pages.h"
#include "app/manual.h"
#include "app/on_rank_zero.h"
#include "app/option_table.h"
#include "magister/core/error.h"

namespace magister {

namespace {

// "tasks.3.judge.combine", as an experiment's errors name it, becomes "judge.combine".
std::string without_place(const std::string& key) {
  if (!key.starts_with("tasks.")) return key;
  const std::size_t end = key.find_first_not_of("0123456789", 6);
  return end == std::string::npos || end == 6 || key[end] != '.' ? key : key.substr(end + 1);
}

// Returns all keys that have this path or end with it, since several tasks may have a key of one name.
std::vector<KeyEntry> entries_of(const std::string& key) {
  std::vector<KeyEntry> found;
  for (KeyEntry& entry : key_entries()) {
    const bool is_asked_for = entry.name == key || without_place(entry.name) == key || entry.name.ends_with("." + key);
    if (is_asked_for) found.push_back(std::move(entry));
  }
  return found;
}

std::string shown(const KeyEntry& entry) {
  std::string out = fmt::format("{}\n  default: {}\n  range: {}\n  {}\n", entry.name,
                                entry.standard.empty() ? "none, it must be given" : entry.standard,
                                entry.range.empty() ? "any" : entry.range, entry.meaning);
  for (const std::string& line : entry.details) out += line.empty() ? "\n" : "  " + line + "\n";
  return out + "  page: " + entry.page + "\n";
}

// Lists the keys of a section such as `train.optimizer`, or of a task.
std::string section_text(const std::string& section) {
  std::string out;
  for (const KeyEntry& entry : key_entries()) {
    const std::string name = without_place(entry.name);
    const bool is_inside = name.starts_with(section + ".") || name.find("." + section + ".") != std::string::npos;
    if (is_inside) out += fmt::format("  {}: {}\n", entry.name, entry.meaning);
  }
  return out.empty() ? out : fmt::format("{} is a section; magister help explains each of its keys:\n{}", section, out);
}

std::string key_text(const std::string& key) {
  const std::vector<KeyEntry> found = entries_of(without_place(key));
  std::string out;
  for (const KeyEntry& entry : found) out += (out.empty() ? "" : "\n") + shown(entry);
  if (!found.empty()) return out;
  if (const std::string section = section_text(without_place(key)); !section.empty()) return section;
  std::vector<std::string> names;
  for (const KeyEntry& entry : key_entries()) {
    names.push_back(entry.name);
    names.push_back(entry.name.substr(entry.name.rfind('.') + 1));
  }
  const std::string near = nearest_name(key, names);
  throw Error(ExitCode::kUsage,
              fmt::format("there is neither a key nor a command {} (nothing can be explained); {}", printable(key, 100),
                          near.empty() ? "configs/README.md leads to all keys, magister --help lists all commands"
                                       : fmt::format("did you mean {}?", near)));
}

}  // namespace

ExitCode help_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string asked = call.line.positional("KEY");
    const CommandEntry* const command = find_command(asked.c_str());
    say(asked.empty() ? help_text() : command != nullptr ? help_text(*command) : key_text(asked));
    return ExitCode::kDone;
  });
}

}  // namespace magister
