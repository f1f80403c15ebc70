// SentencePiece .model files (protobuf), and texts through the vocabulary.
#include "fuzz/fuzz_target.h"
#include "fuzz/streaming.h"
#include "magister/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  fuzz::read_or_refuse({ExitCode::kData}, [text = fuzz::text_of(data, size)] {
    const Tokenizer tokenizer = Tokenizer::from_sentencepiece(text, "spiece.model", {});
    for (const char* line :
         {"", "The plan of  unit 12,\n\tdéjà vu", "数据 \u200d👍🏽 <s>a</s> ﬁ Å", "aaaaaaaaaaaaaaaaaaaaaaaa"}) {
      const std::vector<TokenId> ids = tokenizer.encode(line);
      for (const TokenId id : ids) fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
      fuzz::check_streaming(tokenizer, ids);
      tokenizer.decode(ids, true);
      tokenizer.encode(tokenizer.guard_special_tokens(line), {true, true, true});
    }
  });
  return 0;
}
