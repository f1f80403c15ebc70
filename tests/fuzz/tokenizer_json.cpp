// tokenizer.json: normalisers, pre-tokenizers, models, post-processors and decoders of every kind, and texts encoded by
// them.
#include "fuzz/fuzz_target.h"
#include "fuzz/vocabulary_texts.h"
#include "magister/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  fuzz::read_or_refuse({ExitCode::kData}, [text = fuzz::text_of(data, size)] {
    fuzz::check_texts(Tokenizer::from_json(text, "tokenizer.json"));
  });
  return 0;
}
