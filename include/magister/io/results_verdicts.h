// ResultsVerdicts: the verdicts of a complete `judge` file, for a task that combines them with its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace magister {

struct ResultsVerdicts {
  std::string names;                // root attribute `verdicts`: "yes,no"
  std::uint64_t samples_a_text = 1; // prompts and orders
  // By sample:
  std::vector<std::uint64_t> source_index;
  std::vector<std::int32_t> verdict;
  std::vector<float> class_logprob;  // [samples, classes], nats; NaN where a reply was read as text
  std::vector<std::uint8_t> parse, order;

  // Throws Error(kData) for what is no complete file of verdicts, Error(kInputOutput) for what is no file. Local.
  static ResultsVerdicts read(const std::string& path);
};

}  // namespace magister
