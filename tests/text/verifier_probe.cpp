// Verifiers for the Python oracle test. Standard input: one line {kind, rule, pattern, last, completion, answer};
// standard output: one line [score, extracted or null, class or null], or the text of the error; with `judge` [score,
// why it was not compared, milliseconds of CPU time].
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "magister/core/error.h"
#include "magister/text/verifier.h"

using namespace magister;
using nlohmann::json;

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const json entry = json::parse(line);
    VerifierOptions options;
    options.kind = static_cast<VerifierKind>(entry.at("kind").get<int>());
    options.rule = static_cast<MathRule>(entry.value("rule", 0));
    options.pattern = entry.value("pattern", "");
    options.last_match = entry.value("last", false);
    json out;
    try {
      const Verifier verifier(options);
      const auto text = entry.at("completion").get<std::string>();
      const auto nullable = [](const std::optional<std::string>& value) { return value ? json(*value) : json(); };
      if (entry.value("judge", false)) {
        const auto answer = entry.at("answer").get<std::string>();
        const std::clock_t begin = std::clock();
        const Judged judged = verifier.judge(text, answer);
        const double milliseconds = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        out = {judged.score, kUnreadNames.at(static_cast<std::size_t>(judged.unread)), milliseconds};
        std::cout << out.dump() << '\n';
        continue;
      }
      out = {verifier.score(text, entry.at("answer").get<std::string>()), nullable(verifier.extract(text)),
             nullable(verifier.answer_class(text, entry.at("answer").get<std::string>()))};
    } catch (const Error& error) {
      out = error.what();
    }
    std::cout << out.dump(-1, ' ', true, json::error_handler_t::replace) << '\n';
  }
}
