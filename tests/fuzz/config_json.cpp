// config.json of a model's folder: its family, its sizes, its rotary embedding.
#include "fuzz/fuzz_target.h"
#include "magister/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  static const fuzz::InputFile input("config.json");
  input.write(data, size);
  fuzz::read_or_refuse({ExitCode::kData}, [] {
    const ModelDescription model = describe_config(input.path());
    fuzz::require(model.config.num_parameters() > 0, "a model without parameters");
  });
  return 0;
}
