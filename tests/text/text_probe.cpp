// Tokenizer for the Python oracle test: `text_probe json|gguf FILE [encode|decode|speed]`. Standard input: a JSON text (or a
// list of ids) a line; standard output: a JSON list of ids (or a text) a line. A gguf FILE is a JSON dump of the vocabulary.
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "magister/text/tokenizer.h"

using nlohmann::json;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

magister::Tokenizer load(const std::string& kind, const std::string& path) {
  if (kind == "json") return magister::Tokenizer::from_json(read_file(path), path);
  const json dump = json::parse(read_file(path));
  magister::GgufVocabulary vocabulary;
  vocabulary.model = dump["model"];
  vocabulary.pre = dump["pre"];
  vocabulary.tokens = dump["tokens"].get<std::vector<std::string>>();
  vocabulary.token_types = dump["token_types"].get<std::vector<std::int32_t>>();
  vocabulary.merges = dump["merges"].get<std::vector<std::string>>();
  vocabulary.bos_id = dump["bos_id"];
  vocabulary.eos_id = dump["eos_id"];
  vocabulary.add_bos = dump["add_bos"].get<bool>();
  vocabulary.add_eos = dump["add_eos"].get<bool>();
  return magister::Tokenizer::from_gguf(vocabulary, path);
}

}  // namespace

int main(int argc, char** argv) {
  const magister::Tokenizer tokenizer = load(argv[1], argv[2]);
  const std::string what = argc > 3 ? argv[3] : "encode";
  std::size_t bytes = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::string line; std::getline(std::cin, line);) {
    const json value = json::parse(line);
    if (what == "decode") {
      std::cout << json(tokenizer.decode(value.get<std::vector<magister::TokenId>>())).dump() << "\n";
      continue;
    }
    const auto text = value.get<std::string>();
    bytes += text.size();
    const auto ids = tokenizer.encode(text);
    if (what == "encode") std::cout << json(ids).dump() << "\n";
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (what == "speed") std::cout << bytes * 1e-6 / seconds << "\n";
  return 0;
}
