// The tokenizer of a model's file, for gguf_vocab_test.py: `vocabulary_probe FILE [plain]`. Standard input: a JSON text a line;
// standard output: a JSON list of its ids, with the special tokens that the file asks for unless `plain`.
#include <iostream>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/run/model_source.h"

int main(int argc, char** argv) {
  try {
    const magister::Tokenizer tokenizer = magister::load_tokenizer(argv[1]);
    magister::EncodeOptions options;
    options.add_special_tokens = argc < 3;
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << nlohmann::json(tokenizer.encode(nlohmann::json::parse(line).get<std::string>(), options)).dump()
                << "\n";
    }
    return 0;
  } catch (const magister::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
