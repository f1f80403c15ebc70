// The tokenizer of a model's file, for gguf_vocab_test.py: `vocabulary_probe FILE [plain|text|decode|digest]`. Standard
// input: one JSON text per line; standard output: a JSON list of its ids, with the special tokens that the file
// requires unless `plain`. text: special tokens written in a text are text. decode: ids to text.
// `vocabulary_probe ends`: reads one path per line and writes the list of the file's tokens that end a text.
// digest: the value that a results file stores for the tokenizer.
#include <iostream>
#include <nlohmann/json.hpp>

#include "../support/serve_cases.h"
#include "magister/core/error.h"
#include "magister/runtime/tokenizer_files.h"

namespace {

int run(int argc, char** argv) {
  try {
    if (std::string(argv[1]) == "ends") {
      for (std::string path; std::getline(std::cin, path);) {
        const auto file = magister::TensorFile::open(path);
        std::cout << nlohmann::json(magister::gguf_end_tokens(file->metadata(), path)).dump() << "\n";
      }
      return 0;
    }
    const magister::Tokenizer tokenizer = magister::load_tokenizer(argv[1]);
    if (argc > 2 && std::string(argv[2]) == "digest") {
      std::cout << tokenizer.sha256() << "\n";
      return 0;
    }
    magister::EncodeOptions options;
    options.add_special_tokens = argc < 3;
    options.special_tokens_in_text = argc < 3 || std::string(argv[2]) != "text";
    for (std::string line; std::getline(std::cin, line);) {
      if (argc > 2 && std::string(argv[2]) == "decode") {
        const auto ids = nlohmann::json::parse(line).get<std::vector<magister::TokenId>>();
        std::cout << nlohmann::json(tokenizer.decode(ids)).dump() << "\n";
        continue;
      }
      std::cout << nlohmann::json(tokenizer.encode(nlohmann::json::parse(line).get<std::string>(), options)).dump()
                << "\n";
    }
    return 0;
  } catch (const magister::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}

}  // namespace

int main(int argc, char** argv) { return magister::test::serve_cases(argc, argv, run); }
