// HDF5 results files: opened, described and checked with the rules of every task. HDF5 itself is built without the
// fuzzer's instrumentation; where it crashes on a file, the child process that tries first crashes instead
// (src/io/results/foreign.h).
#include "fuzz/fuzz_target.h"
#include "magister/io/results/tools.h"
#include "magister/run/task_kinds.h"
#include "magister/tasks/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  static const fuzz::InputFile input("x.h5");
  static const std::vector<ResultsSchema> schemas = schemas_of(built_in_tasks());
  input.write(data, size);
  if (!fuzz::read_or_refuse({ExitCode::kData}, [] { describe_results(input.path(), true); })) return 0;
  fuzz::read_or_refuse({ExitCode::kData}, [] { describe_results(input.path(), false); });
  fuzz::read_or_refuse({ExitCode::kData}, [] { check_results(input.path(), schemas); });
  return 0;
}
