// Tokenizer for the Python oracle test:
// `text_probe json|gguf|sentencepiece|tiktoken|tekken FILE [encode|plain|decode|back|behind|speed|rules]`.
// `text_probe folder FOLDER ...`: tokenizer.json or tokenizer.model in it, with the other files in it that name tokens.
// Standard input: one JSON text (or list of ids) per line; standard output: one JSON list of ids (or text) per line. A
// gguf FILE is a JSON dump of the vocabulary. plain: no special tokens, neither around nor in the text. back: a list of
// the text, the text without special tokens, and the parts that a streaming decoder gives. behind: for two lists of ids
// the text of the second after the first, with special tokens and without.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "magister/core/error.h"
#include "magister/text/decode_continuation.h"
#include "magister/text/streaming_decoder.h"
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
  if (kind == "folder") {
    const magister::TokenizerConfigFiles config_files = {read_file(path + "/tokenizer_config.json"),
                                                         read_file(path + "/special_tokens_map.json"),
                                                         read_file(path + "/added_tokens.json"), path};
    const std::string model = read_file(path + "/tokenizer.model");
    return model.empty() ? magister::Tokenizer::from_json(read_file(path + "/tokenizer.json"), path, config_files)
                         : magister::Tokenizer::from_sentencepiece(model, path, {}, config_files);
  }
  if (kind == "json") return magister::Tokenizer::from_json(read_file(path), path);
  if (kind == "sentencepiece") return magister::Tokenizer::from_sentencepiece(read_file(path), path, {});
  if (kind == "tiktoken") return magister::Tokenizer::from_tiktoken(read_file(path), path);
  if (kind == "tekken") return magister::Tokenizer::from_tekken(read_file(path), path);
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

int run(int argc, char** argv) {
  const magister::Tokenizer tokenizer = load(argv[1], argv[2]);
  const std::string what = argc > 3 ? argv[3] : "encode";
  if (what == "rules") {  // prints what decides whether two tokenizers are the same
    std::cout << tokenizer.rules_sha256() << "\n";
    return 0;
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(std::move(line));
  // Encodes the lines as they are; the best of three rounds, in CPU time, because other processes on the machine count
  // less.
  if (what == "speed") {
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      std::size_t bytes = 0;
      std::vector<magister::TokenId> ids;
      const std::clock_t begin = std::clock();
      for (const std::string& line : lines) {
        ids.clear();
        tokenizer.encode(line, {}, ids);
        bytes += line.size();
      }
      const double seconds = static_cast<double>(std::max<std::clock_t>(std::clock() - begin, 1)) / CLOCKS_PER_SEC;
      best = std::max(best, static_cast<double>(bytes) * 1e-6 / seconds);
    }
    std::cout << best << "\n";
    return 0;
  }
  magister::EncodeOptions options;
  if (what == "plain") options.add_special_tokens = options.special_tokens_in_text = false;
  for (const std::string& line : lines) {
    const json value = json::parse(line);
    if (what == "back") {
      const auto ids = value.get<std::vector<magister::TokenId>>();
      magister::StreamingDecoder decoder(tokenizer);
      json parts = json::array();
      for (const magister::TokenId id : ids) parts.push_back(decoder.push(id));
      parts.push_back(decoder.finish());
      std::cout << json::array({tokenizer.decode(ids), tokenizer.decode(ids, true), parts}).dump() << "\n";
      continue;
    }
    if (what == "behind") {
      const auto both = value.get<std::vector<std::vector<magister::TokenId>>>();
      std::cout << json::array({decode_continuation(tokenizer, both[0], both[1]),
                                decode_continuation(tokenizer, both[0], both[1], true)})
                       .dump()
                << "\n";
      continue;
    }
    if (what == "decode") {
      std::cout << json(tokenizer.decode(value.get<std::vector<magister::TokenId>>())).dump() << "\n";
    } else {
      std::cout << json(tokenizer.encode(value.get<std::string>(), options)).dump() << "\n";
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const magister::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
