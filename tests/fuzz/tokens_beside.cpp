// tokenizer_config.json, special_tokens_map.json and added_tokens.json, joined by NUL bytes, with a vocabulary of
// letters; texts encoded by the resulting tokenizer.
#include "fuzz/fuzz_target.h"
#include "fuzz/vocabulary_texts.h"
#include "magister/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  const std::string text(fuzz::text_of(data, size));
  TokenizerConfigFiles files;
  files.folder = "folder";
  std::size_t begin = 0;
  for (std::string* file : {&files.config, &files.special_tokens_map, &files.added_tokens}) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    *file = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
  }
  constexpr const char* kLetters =
      R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true}], "normalizer": {"type": "Lowercase"},
          "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1, "c": 2, "the": 3}}})";
  fuzz::read_or_refuse({ExitCode::kData},
                       [&] { fuzz::check_texts(Tokenizer::from_json(kLetters, "tokenizer.json", files)); });
  return 0;
}
