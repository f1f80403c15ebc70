// Learning objectives from a text file: lines `1.1.1.1 text`, or YAML.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

struct ExamObjective {
  std::string number;  // "1.1.1.1": numbers separated by dots
  std::string text;
  std::uint64_t line = 0;  // from 1
  // The passage of the source from which the model wrote it; none: it was given.
  std::optional<std::size_t> passage = std::nullopt;
};

struct ObjectiveList {
  std::vector<ExamObjective> objectives;  // in the order of the file
  // "<file>:<line>: <problem> (<why it matters>); <what to do>", in the order of the lines. The first
  // kMaxObjectiveFaults alone, and then how many more there are.
  std::vector<std::string> faults;
};
inline constexpr std::size_t kMaxObjectiveFaults = 20;

// Reads the objectives in `bytes`; `file` is for messages. Lines: a number, a space, a text; empty lines and lines that
// begin with `#` are skipped; a full stop after the number is allowed. YAML (a name that ends in .yaml or .yml): a list
// of maps {number: "1.1", text: ...} or of texts `1.1 text`. Faults: no objective, no number, no text, a number that
// an earlier line has, bytes that are not UTF-8. Numbers are compared as numbers: 1.01 is 1.1.
ObjectiveList read_objectives(std::string_view bytes, const std::string& file);

// Orders 1.2 before 1.10. Numbers that are equal otherwise by their bytes.
bool objective_before(std::string_view a, std::string_view b);

}  // namespace magister
