// Statistics and the parsing of replies for the Python test: one JSON request per line on standard input, one answer
// per line.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "magister/core/wilson.h"
#include "magister/tasks/judge/scoring.h"
#include "tasks/judge/summary.h"

int main() {
  using namespace magister;
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json request = nlohmann::json::parse(line);
    nlohmann::json answer;
    if (request.contains("wilson")) {
      const auto [low, high] = wilson_interval(request["wilson"][0], request["wilson"][1]);
      answer = {low, high};
    } else if (request.contains("confusion")) {
      const auto matrix = request["confusion"].get<Confusion>();
      answer = {cohens_kappa(matrix), scotts_pi(matrix)};
    } else if (request.contains("reply")) {
      std::vector<VerdictClass> classes;
      for (const auto& word : request["words"]) classes.push_back({word.get<std::string>(), {word.get<std::string>()}});
      answer = first_word(request["reply"].get<std::string>(), classes);
    } else {
      // in_memory: how many scores before they go to disk.
      Auroc curve(std::filesystem::temp_directory_path().string(), request.value("in_memory", std::size_t{1} << 20));
      for (const auto& pair : request["auroc"]) curve.add(pair[0].get<double>(), pair[1].get<int>() != 0);
      answer = curve.value();
    }
    std::cout << answer.dump() << std::endl;
  }
}
