// math: compares one pair by the rule math_verify and prints what the rule read.
#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/core/error.h"
#include "magister/text/math_verify.h"

namespace magister {

namespace {

std::string shown(std::string_view side, const MathReading& reading) {
  std::string out =
      fmt::format("{}: {}\n", side, reading.formula.empty() ? "nothing was found" : printable(reading.formula, 400));
  if (reading.tree.empty() && !reading.fault.empty())
    out += fmt::format("  not read: {}\n", printable(reading.fault, 400));
  std::string_view rest = reading.tree;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    out.append("  ").append(rest.substr(0, end)).append("\n");
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return out;
}

}  // namespace

ExitCode math_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const MathExplanation found = explain_math(call.line.positional("GOLD"), call.line.positional("ANSWER"));
    say(shown("gold", found.gold) + shown("answer", found.answer));
    say(fmt::format("{}: {}\n", found.right ? "right" : "wrong", printable(found.why, 400)));
    return ExitCode::kDone;
  });
}

}  // namespace magister
