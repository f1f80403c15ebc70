// The good files of bad_files_test.cpp that are written byte by byte, each with a place where a case breaks it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace magister {

namespace bad_files {

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string sized(const std::string& value) { return raw<std::uint64_t>(value.size()) + value; }

inline std::string base64(int byte) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
}

// "u32 7", "i32 -1", "u64 9", "f32 1", "nan 0", "text x", "texts a", "numbers 1" -> the bytes of a value with its type.
inline std::string metadata_value(const std::string& words) {
  const std::string type = words.substr(0, words.find(' ')), value = words.substr(words.find(' ') + 1);
  const auto kind = [](std::uint32_t number) { return raw(number); };
  if (type == "u32") return kind(4) + raw(static_cast<std::uint32_t>(std::stoull(value)));
  if (type == "i32") return kind(5) + raw(static_cast<std::int32_t>(std::stoll(value)));
  if (type == "u64") return kind(10) + raw<std::uint64_t>(std::stoull(value));
  if (type == "f32") return kind(6) + raw(std::stof(value));
  if (type == "nan") return kind(6) + raw(0x7FC00000u);
  if (type == "texts") return kind(9) + kind(8) + raw<std::uint64_t>(1) + sized(value);
  if (type == "numbers") return kind(9) + kind(5) + raw<std::uint64_t>(1) + raw(std::stoi(value));
  return kind(8) + sized(value);
}

}  // namespace bad_files

inline std::string tiktoken_list() {
  std::string list;
  for (int byte = 0; byte < 256; ++byte) list += bad_files::base64(byte) + " " + std::to_string(byte) + "\n";
  return list;
}

inline std::string tekken_json() {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab += (byte > 0 ? "," : "") + ("{\"rank\":" + std::to_string(byte)) + ",\"token_bytes\":\"" +
             bad_files::base64(byte) + "\"}";
  }
  return R"({"config":{"pattern":"\\p{L}+|[^\\p{L}]","default_vocab_size":259,"default_num_special_tokens":3},"vocab":[)" +
         vocab +
         R"(],"special_tokens":[{"rank":0,"token_str":"<unk>"},{"rank":1,"token_str":"<s>"},{"rank":2,"token_str":"</s>"}]})";
}

// A whole Llama of one layer, with one pair of its metadata replaced or added ("missing": taken away).
inline std::string gguf_model(const std::string& key, const std::string& instead) {
  using namespace bad_files;
  const std::vector<std::string> tokens = {"<s>", "</s>", "a", "b", "ab"};
  std::string list = raw<std::uint32_t>(9) + raw<std::uint32_t>(8) + raw<std::uint64_t>(tokens.size());
  for (const std::string& token : tokens) list += sized(token);
  std::string types = raw<std::uint32_t>(9) + raw<std::uint32_t>(5) + raw<std::uint64_t>(tokens.size());
  for (const int type : {3, 3, 1, 1, 1}) types += raw(type);
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"general.architecture", metadata_value("text llama")},
      {"llama.block_count", metadata_value("u32 1")},
      {"llama.context_length", metadata_value("u32 64")},
      {"llama.embedding_length", metadata_value("u32 8")},
      {"llama.feed_forward_length", metadata_value("u32 12")},
      {"llama.attention.head_count", metadata_value("u32 2")},
      {"llama.attention.head_count_kv", metadata_value("u32 1")},
      {"llama.attention.layer_norm_rms_epsilon", metadata_value("f32 0.00001")},
      {"llama.rope.freq_base", metadata_value("f32 10000")},
      {"tokenizer.ggml.model", metadata_value("text gpt2")},
      {"tokenizer.ggml.pre", metadata_value("text gpt-2")},
      {"tokenizer.ggml.tokens", list},
      {"tokenizer.ggml.token_type", types},
      {"tokenizer.ggml.merges", metadata_value("texts a b")},
      {"tokenizer.ggml.bos_token_id", metadata_value("u32 0")},
      {"tokenizer.ggml.eos_token_id", metadata_value("u32 1")}};
  std::erase_if(pairs, [&](const auto& pair) { return pair.first == key; });
  if (!key.empty() && instead != "missing") pairs.emplace_back(key, metadata_value(instead));
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors = {
      {"token_embd.weight", {8, 5}},        {"output_norm.weight", {8}},       {"blk.0.attn_norm.weight", {8}},
      {"blk.0.attn_q.weight", {8, 8}},      {"blk.0.attn_k.weight", {8, 4}},   {"blk.0.attn_v.weight", {8, 4}},
      {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_norm.weight", {8}},    {"blk.0.ffn_gate.weight", {8, 12}},
      {"blk.0.ffn_up.weight", {8, 12}},     {"blk.0.ffn_down.weight", {12, 8}}};
  std::string file =
      "GGUF" + raw<std::uint32_t>(3) + raw<std::uint64_t>(tensors.size()) + raw<std::uint64_t>(pairs.size());
  for (const auto& [name, value] : pairs) file += sized(name) + value;
  std::uint64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    std::uint64_t bytes = 4;
    file += sized(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t size : shape) {
      file += raw(size);
      bytes *= size;
    }
    file += raw<std::uint32_t>(0) + raw(offset);
    offset += (bytes + 31) / 32 * 32;
  }
  file.resize((file.size() + 31) / 32 * 32 + offset);
  return file;
}

namespace bad_files {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127) | 128);
  return out + static_cast<char>(value);
}
inline std::string field(unsigned number, unsigned type, const std::string& content) {
  return varint(number << 3 | type) + (type == 2 ? varint(content.size()) : "") + content;
}
inline std::string piece(const std::string& text, float score, std::uint64_t type = 1) {
  return field(1, 2, field(1, 2, text) + field(2, 5, raw(score)) + field(3, 0, varint(type)));
}

}  // namespace bad_files

// {what is wrong, words of the message}; sentencepiece_model() writes each.
inline std::vector<std::pair<std::string, std::string>> sentencepiece_cases() {
  return {{"no pieces", "has no pieces"},
          {"a piece of type 9", "has the type 9"},
          {"a piece of type 2^63", "has the type"},
          {"a piece without text", "is empty"},
          {"a piece that is not UTF-8", "not UTF-8"},
          {"a score that is no number", "score"},
          {"a score that is infinite", "score"},
          {"a score as a whole number", "spiece.model"},
          {"the same piece twice", "twice"},
          {"two unknown pieces", "unknown"},
          {"no unknown piece", "unknown"},
          {"a word model", "model type is 3"},
          {"model type 2^40", "model type"},
          {"a denormalizer", "denormalizer"},
          {"a charsmap of three bytes", "spiece.model"},
          {"a charsmap that ends within its tables", "spiece.model"},
          {"a length of 2^63", "spiece.model"},
          {"a group", "spiece.model"},
          {"a number of 11 bytes", "spiece.model"},
          {"field 0", "spiece.model"},
          {"text instead of a protobuf", "spiece.model"},
          {"bytes without all byte pieces", "spiece.model"}};
}

inline std::string sentencepiece_model(const std::string& wrong) {
  using namespace bad_files;
  const auto is = [&](const char* what) { return wrong == what; };
  const std::string space = "\xE2\x96\x81";
  if (is("text instead of a protobuf")) return "[package]\nname = \"x\"\n";
  std::string pieces = is("no unknown piece") ? "" : piece("<unk>", 0, 2);
  pieces += piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece(space, -1) + piece("a", -2) + piece("b", -3);
  if (is("two unknown pieces")) pieces += piece("<unk2>", 0, 2);
  if (is("the same piece twice")) pieces += piece("a", -4);
  if (is("a piece of type 9")) pieces += piece("c", -4, 9);
  if (is("a piece of type 2^63")) pieces += piece("c", -4, 1ull << 63);
  if (is("a piece without text")) pieces += piece("", -4);
  if (is("a piece that is not UTF-8")) pieces += piece("\xFF", -4);
  if (is("a score that is no number")) pieces += field(1, 2, field(1, 2, "c") + field(2, 5, raw(0x7FC00000u)));
  if (is("a score that is infinite")) pieces += field(1, 2, field(1, 2, "c") + field(2, 5, raw(0x7F800000u)));
  if (is("a score as a whole number")) pieces += field(1, 2, field(1, 2, "c") + field(2, 0, varint(4)));
  if (is("a length of 2^63")) pieces += varint(1 << 3 | 2) + varint(1ull << 63);
  if (is("a group")) pieces += varint(1 << 3 | 3);
  if (is("a number of 11 bytes")) pieces += varint(9 << 3) + std::string(10, '\xFF') + "\1";
  if (is("field 0")) pieces += field(0, 2, "x");
  if (is("no pieces")) pieces = "";
  std::string trainer;
  if (is("a word model")) trainer += field(3, 0, varint(3));
  if (is("model type 2^40")) trainer += field(3, 0, varint(1ull << 40));
  if (is("bytes without all byte pieces")) trainer += field(35, 0, varint(1));
  std::string normalizer = field(1, 2, "identity");
  if (is("a charsmap of three bytes")) normalizer += field(2, 2, "abc");
  if (is("a charsmap that ends within its tables")) normalizer += field(2, 2, raw(1u << 30) + std::string(64, 'x'));
  std::string file = pieces + field(2, 2, trainer) + field(3, 2, normalizer);
  if (is("a denormalizer")) file += field(5, 2, field(2, 2, "abcdefgh"));
  return file;
}

}  // namespace magister
