// The keys in configs/keys/*.md, which the build embeds in the program: `schema` takes its descriptions from them,
// `help` prints them.
#pragma once

#include <string>
#include <vector>

namespace magister {

// A row of a table, and the paragraphs about its key below the table, without Markdown's marks.
struct KeyEntry {
  std::string name;      // "judge.combine"; shared keys of tasks begin with "tasks.0."
  std::string standard;  // the default; empty: the key must be given
  std::string range;
  std::string meaning;
  std::string page;  // "configs/keys/judge.md"
  // The lines below the table, with an empty one between two paragraphs; mostly none.
  std::vector<std::string> details;
};

// All entries, in the order of the pages, which is that of their names.
std::vector<KeyEntry> key_entries();

}  // namespace magister
