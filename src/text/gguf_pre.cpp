// The expressions that split texts, by the names that GGUF files use.
// Source: llama.cpp's table of pre-tokenizers (src/llama-vocab.cpp, the version in llama-cpp-python 0.3.36). Where its
// engine lacks a class and it writes a simpler expression than the family's own tokenizer.json, this table has the
// family's. tests/runtime/gguf_vocab_test.py compares ids with llama.cpp's.
#include "text/gguf_pre.h"

#include "magister/core/error.h"

namespace magister {
namespace {

struct Cut {
  std::string_view name;
  std::vector<const char*> expressions;
};

// Letters by case, as GPT-4o and Tekken split them.
constexpr const char* kCased = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                               R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                               R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kCasedWithContractions =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF)"
    R"(}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3)"
    R"(A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\)"
    R"(x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00})"
    R"(-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D)"
    R"(}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD)"
    R"(0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{21)"
    R"(0A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{21)"
    R"(39}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2C)"
    R"(EB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A)"
    R"(78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x)"
    R"({10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A)"
    R"(0}-\x{118DF}\x{1E900}-\x{1E943}]+)";

const std::vector<Cut>& cuts() {
  static const std::vector<Cut> kCuts = {
      {"gpt-2", {kGpt2Pattern}},
      {"digits", {R"(\p{N})", kGpt2Pattern}},
      {"llama-3", {kLlama3Pattern}},
      {"qwen2", {kQwen2Pattern}},
      {"qwen35",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
        R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      // Without the ideographic space: it is not punctuation for the model's own tokenizer nor, by its order of rules,
      // for llama.cpp.
      {"deepseek-llm",
       {R"([\r\n])", kDeepseekLetters,
        R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+)", R"(\s+$)",
        R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N}+)"}},
      {"deepseek-coder",
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
        R"(\p{N})"}},
      {"deepseek-v3",
       {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
        R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"}},
      {"tekken", {kCased}},
      {"gpt-4o", {kCasedWithContractions}},
      {"bloom", {R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"}},
      {"viking", {R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)", R"(\p{N})"}},
      {"bailing",
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {"seed-coder",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"lines", {R"([^\n]+|[\n]+)"}},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return kCuts;
}

// Fields: name, cut, ignore_merges, add_bos, nfc. No name implies an EOS token.
constexpr GgufPreType kTypes[] = {
    {"default", "default"},
    {"gpt-2", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"mpt", "gpt-2"},
    {"olmo", "gpt-2"},
    {"jais", "gpt-2"},
    {"trillion", "gpt-2"},
    {"granite-docling", "gpt-2"},
    {"exaone4", "gpt-2"},
    {"gigachat", "gpt-2"},
    {"mellum", "gpt-2"},
    {"modern-bert", "gpt-2"},
    {"jina-v2-code", "gpt-2"},
    {"roberta-bpe", "gpt-2"},
    {"smollm", "digits"},
    {"starcoder", "digits"},
    {"refact", "digits"},
    {"command-r", "digits"},
    {"codeshell", "digits"},
    {"exaone", "digits"},
    {"minerva-7b", "digits"},
    {"mellum2", "digits"},
    {"llama-bpe", "llama-3", true, true},
    {"llama3", "llama-3", true, true},
    {"llama-v3", "llama-3", true, true},
    {"falcon3", "llama-3", true, true},
    {"falcon-h1", "llama-3", true, true},
    {"pixtral", "llama-3", true, true},
    {"midm-2.0", "llama-3", true, true},
    {"lfm2", "llama-3", true, true},
    {"dbrx", "llama-3"},
    {"smaug-bpe", "llama-3"},
    {"chatglm-bpe", "llama-3"},
    {"glm4", "llama-3", true},
    {"glm5", "llama-3", true},
    {"qwen2", "qwen2", false, false, true},
    {"deepseek-r1-qwen", "qwen2"},
    {"stablelm2", "qwen2"},
    {"megrez", "qwen2"},
    {"hunyuan", "qwen2"},
    {"grok-2", "qwen2"},
    {"solar-open", "qwen2"},
    {"qwen35", "qwen35"},
    {"deepseek-llm", "deepseek-llm"},
    {"deepseek-coder", "deepseek-coder"},
    {"deepseek-v3", "deepseek-v3"},
    {"hunyuan-dense", "deepseek-v3"},
    {"joyai-llm", "deepseek-v3"},
    {"falcon", "falcon"},
    {"tekken", "tekken", true, true},
    {"gpt-4o", "gpt-4o"},
    {"llama4", "gpt-4o"},
    {"minimax-m2", "gpt-4o"},
    {"bloom", "bloom"},
    {"gpt3-finnish", "bloom"},
    {"poro-chat", "bloom"},
    {"viking", "viking"},
    {"bailingmoe", "bailing"},
    {"bailingmoe2", "bailing"},
    {"llada-moe", "bailing"},
    {"seed-coder", "seed-coder"},
    {"gemma4", "lines", false, true},
};

}  // namespace

const GgufPreType& gguf_pre_type(const std::string& name, const std::string& source) {
  std::string known;
  for (const GgufPreType& type : kTypes) {
    if (type.name == name) return type;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  fail(ExitCode::kData,
       "{}: its pre-tokenizer \"{}\" is not known here (texts could not be split as the model was trained; known "
       "are {}); use a file with one of them, or the model's folder with its tokenizer.json",
       source, printable(name), known);
}

PreTokenizerPtr gguf_pre_tokenizer(const GgufPreType& type, const std::string& source) {
  std::vector<PreTokenizerPtr> steps;
  for (const Cut& cut : cuts()) {
    if (cut.name != type.cut) continue;
    for (const char* expression : cut.expressions)
      steps.push_back(make_split(expression, SplitBehavior::kIsolated, false, source));
  }
  return make_sequence(std::move(steps));
}

}  // namespace magister
