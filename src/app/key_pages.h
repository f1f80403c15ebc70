// The tables of keys in configs/README.md, which the build puts into the program: `schema` takes its descriptions from them, `help` prints them.
#pragma once

#include <string>
#include <vector>

namespace magister {

// One row of a table, without Markdown's marks.
struct KeyEntry {
  std::string name;      // "judge.combine"; shared keys of tasks begin with "tasks.0."
  std::string standard;  // the default; empty: the key must be given
  std::string range;
  std::string meaning;
};

// In the order of the page.
std::vector<KeyEntry> key_entries();

}  // namespace magister
