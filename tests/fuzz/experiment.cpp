// YAML experiments with every task: read or refused as configuration, and what is resolved reads back as itself.
#include "magister/app/experiment.h"

#include "fuzz/fuzz_target.h"
#include "magister/tasks/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  std::string resolved;
  const std::string text(fuzz::text_of(data, size));
  if (!fuzz::read_or_refuse({ExitCode::kConfig},
                            [&] { resolved = Experiment(text, "e.yaml", {}, built_in_tasks()).resolved_yaml(); }))
    return 0;
  std::string again;
  fuzz::require(
      fuzz::read_or_refuse({ExitCode::kConfig},
                           [&] { again = Experiment(resolved, "e.yaml", {}, built_in_tasks()).resolved_yaml(); }),
      "the resolved experiment is refused");
  fuzz::require(again == resolved, "the resolved experiment reads back as another");
  return 0;
}
