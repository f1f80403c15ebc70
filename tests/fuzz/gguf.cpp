// GGUF: header, metadata, every tensor's values and codes, the model's config, and its vocabulary.
#include <ATen/ATen.h>

#include <algorithm>

#include "fuzz/fuzz_target.h"
#include "fuzz/tensors.h"
#include "magister/model/model_config.h"
#include "magister/runtime/tokenizer_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  static const fuzz::InputFile input("model.gguf");
  input.write(data, size);
  std::unique_ptr<TensorFile> file;
  if (!fuzz::read_or_refuse({ExitCode::kData}, [&] { file = TensorFile::open(input.path()); })) return 0;
  fuzz::read_or_refuse({ExitCode::kData}, [&] { fuzz::read_tensors(*file); });
  fuzz::read_or_refuse({ExitCode::kData}, [&] { describe_model(input.path(), *file); });
  fuzz::read_or_refuse({ExitCode::kData}, [&] {
    const Tokenizer tokenizer = load_tokenizer(input.path(), *file);
    const std::vector<TokenId> ids = tokenizer.encode("The plan, 数据 <|bos|> 12\n");
    for (const TokenId id : ids) fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
    tokenizer.decode(ids);
  });
  return 0;
}
