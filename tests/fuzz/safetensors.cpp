// safetensors: header, and every tensor's values; also as a checkpoint that another program quantised (GPTQ).
#include <cstring>

#include "fuzz/fuzz_target.h"
#include "fuzz/tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  static const fuzz::InputFile plain("model.safetensors"), quantised("model.safetensors");
  static const bool has_config = [] {
    const char* const config =
        R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":8,"desc_act":false,"sym":true}})";
    std::string path = quantised.path();
    path.replace(path.rfind('/'), std::string::npos, "/config.json");
    std::FILE* const file = std::fopen(path.c_str(), "w");
    const bool written = file != nullptr && std::fputs(config, file) >= 0;
    return file != nullptr && std::fclose(file) == 0 && written;
  }();
  fuzz::require(has_config, "config.json cannot be written");
  for (const fuzz::InputFile* input : {&plain, &quantised}) {
    input->write(data, size);
    fuzz::read_or_refuse({ExitCode::kData}, [&] { fuzz::read_tensors(*TensorFile::open(input->path())); });
  }
  return 0;
}
