// Scanners against PCRE2, and tokenizer files that are refused with the place and the reason.
#include "magister/text/tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "magister/core/error.h"
#include "magister/text/streaming_decoder.h"
#include "text/merge_table.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/unigram.h"

namespace magister {
namespace tokenizer_test {

std::vector<std::string> pieces_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  pre_tokenizer.split({text, true}, pieces);
  std::vector<std::string> texts;
  for (const Piece& piece : pieces.list) texts.emplace_back(piece.text);
  return texts;
}

TEST(Scanners, EqualPcre2OnRandomText) {
  // Code points that both Unicode versions know: the patterns' ASCII, Latin, Greek, Cyrillic, digits of several
  // scripts, spaces of several kinds.
  const std::vector<char32_t> alphabet = {'a',    'Z',    's',    'S',   't',     'r',    'e',   'v',   'm',   'l',
                                          'd',    '\'',   '\'',   ' ',   ' ',     '\n',   '\r',  '\t',  '1',   '2',
                                          '.',    '-',    '(',    0xA0,  0xE9,    0x17F,  0x3B1, 0x416, 0x661, 0xBD,
                                          0x2003, 0x3000, 0x4E2D, 0x301, 0x1F600, 0x200B, 0x180E};
  std::mt19937 random(5);
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const auto scanner = make_split(pattern, SplitBehavior::kIsolated, false, "test");
    const auto plain = make_split(pattern, SplitBehavior::kIsolated, false, "test", /*force_pcre2=*/true);
    for (int round = 0; round < 20000; ++round) {
      std::string text;
      for (std::uint32_t i = random() % 16; i > 0; --i) append_utf8(text, alphabet[random() % alphabet.size()]);
      ASSERT_EQ(pieces_of(*scanner, text), pieces_of(*plain, text)) << pattern << "\n" << text;
    }
  }
}

// A small working file; each case below breaks one thing.
std::string working_file() {
  std::string vocab;
  int id = 0;
  for (int byte = 33; byte < 127; ++byte) {
    const std::string c(1, static_cast<char>(byte));
    vocab += (id > 0 ? ",\"" : "\"") + (c == "\"" || c == "\\" ? "\\" + c : c) + "\":" + std::to_string(id);
    ++id;
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":96,"content":"<s>","special":true}],)"
         R"("normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
         R"("post_processor":null,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
         vocab + R"(,"\u0120":94,"ab":95},"merges":["a b"]}})";
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = working_file();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerJson, TheWorkingFileWorks) {
  const Tokenizer tokenizer = Tokenizer::from_json(working_file(), "tokenizer.json");
  EXPECT_EQ(tokenizer.encode("abb<s>"), (std::vector<TokenId>{95, 'b' - 33, 96}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{95, 96}), "ab<s>");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{95, 96}, true), "ab");
  EncodeOptions text_only;
  text_only.special_tokens_in_text = false;
  EXPECT_EQ(tokenizer.encode("<s>", text_only).size(), 3u);
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 96);
  EXPECT_EQ(tokenizer.vocab_size(), 97);
}

struct Broken {
  std::string from;
  std::string to;
  const char* expected;  // part of the message
};

TEST(TokenizerJson, RefusesByName) {
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  const auto split = [](const std::string& pattern) {
    return R"({"type":"Split","pattern":{"Regex":")" + pattern + R"("},"behavior":"Isolated"})";
  };
  const std::vector<Broken> cases = {
      {R"("type":"BPE")", R"("type":"Magic")", "Magic"},
      {R"("type":"BPE")", R"("type":7)", "text"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Uppercase"})", "Uppercase"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Fold"}]})", "Fold"},
      {R"("normalizer":null)", R"("normalizer":7)", "object"},
      {R"("normalizer":null)", R"("normalizer":{"type":"NFC","extra":1})", "extra"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Replace","pattern":{"String":"a"}})", "content"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Replace","pattern":{"String":""},"content":"b"})",
       "matches nothing"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"&&&&"})", "base64"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="})", "charsmap"},
      {R"("normalizer":null)", R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"})", "charsmap"},
      {byte_level, R"({"type":"UnicodeScripts"})", "UnicodeScripts"},
      {byte_level, R"({"type":"Metaspace","replacement":"ab"})", "one character"},
      {byte_level, R"({"type":"Metaspace","prepend_scheme":"last"})", "last"},
      {byte_level, R"({"type":"Metaspace","prepend_scheme":"first","add_prefix_space":false})", "which is meant"},
      {byte_level, R"({"type":"FixedLength","length":0})", "length"},
      {byte_level, R"({"type":"FixedLength","length":-4})", "-4"},
      {byte_level, R"({"type":"CharDelimiterSplit","delimiter":""})", "one character"},
      {byte_level, R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})",
       "follows ByteLevel"},
      {R"("use_regex":true)", R"("use_regex":"yes")", "true or false"},
      {R"("use_regex":true)", R"("use_rgex":true)", "use_rgex"},
      {byte_level, split("(["), "cannot be compiled"},
      {byte_level, split("[a&&b]"), "&&"},
      {byte_level, split("[a[b]]"), "a set inside a set"},
      {byte_level, split("\\\\d{1,3}+"), "after a count"},
      {byte_level, split("\\\\h"), "\\h"},
      {byte_level, split("\\\\p{Greek}"), "Greek"},
      {byte_level, split("[a\\\\S]"), "negated"},
      {byte_level, R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways"})", "Sideways"},
      {byte_level, R"({"type":"Split","pattern":{},"behavior":"Isolated"})", "either String or Regex"},
      {R"("post_processor":null)", R"("post_processor":{"type":"Wrapping"})", "Wrapping"},
      {R"("post_processor":null)", R"("post_processor":{"type":"BertProcessing","cls":["a"],"sep":["b",1]})", "pair"},
      {R"("post_processor":null)", R"("post_processor":{"type":"BertProcessing","cls":["a",0],"sep":["b",9999]})",
       "9999"},
      {R"("post_processor":null)",
       R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}}],"special_tokens":{}})",
       "<x>"},
      {R"("post_processor":null)", R"("post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})",
       "no place for the text"},
      {R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"CTC"})", "CTC"},
      {R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"Strip","content":" ","start":-1,"stop":0})", "-1"},
      {R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"Replace","pattern":{"Regex":"a"},"content":""})",
       "Regex"},
      {R"("merges":["a b"])", R"("merges":["a zz"])", "zz"},
      {R"("merges":["a b"])", R"("merges":["ab"])", "pair"},
      {R"("merges":["a b"])", R"("merges":[["a"]])", "pair"},
      {R"("merges":["a b"])", R"("merges":["b a"])", "\"ba\""},
      {R"("merges":["a b"])", R"("merges":{"a":"b"})", "list"},
      {R"("merges":["a b"])", R"("merges":["a b"],"dropout":0.1)", "dropout"},
      {R"("merges":["a b"])", R"("merges":["a b"],"unk_token":"<gone>")", "<gone>"},
      {R"("merges":["a b"])", R"("merges":["a b"],"surprise":1)", "surprise"},
      {R"("ab":95)", R"("ab":94,"cd":94)", "94"},
      {R"("ab":95)", R"("ab":-1)", "token id"},
      {R"("ab":95)", R"("ab":2147483648)", "token id"},
      {R"("ab":95)", R"("ab":18446744073709551615)", "token id"},
      {R"("ab":95)", R"("ab":99999999)", "99999999"},
      {R"("ab":95)", R"("ab":1.5)", "whole number"},
      {R"("ab":95)", R"("ab":"95")", "whole number"},
      {R"("id":96,)", "", "\"id\""},
      {R"("content":"<s>")", R"("content":"a")", "which one is meant"},
      {R"("version":"1.0")", R"("version":"1.0","extra":1)", "extra"},
  };
  for (const Broken& broken : cases) {
    try {
      Tokenizer::from_json(replaced(broken.from, broken.to), "tokenizer.json");
      ADD_FAILURE() << "accepted: " << broken.to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      const std::string message = error.what();
      EXPECT_NE(message.find(broken.expected), std::string::npos) << broken.to << "\n" << message;
      EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
      EXPECT_NE(message.find("; "), std::string::npos) << message;
    }
  }
}

TEST(TokenizerJson, RefusesDamagedFiles) {
  const std::string whole = working_file();
  for (std::size_t length = 0; length < whole.size(); length += 37) {
    EXPECT_THROW(Tokenizer::from_json(whole.substr(0, length), "t"), Error) << length;
  }
  EXPECT_THROW(Tokenizer::from_json(std::string(100000, '['), "t"), Error);
  EXPECT_THROW(Tokenizer::from_json("{\"a\":\"\xFF\"}", "t"), Error);
  EXPECT_THROW(Tokenizer::from_json("[]", "t"), Error);
}

TEST(Tokenizer, RefusesTextThatIsNone) {
  const Tokenizer tokenizer = Tokenizer::from_json(working_file(), "t");
  EXPECT_THROW(tokenizer.encode("a\xC3"), Error);
}

// As the package tokenizers: models have more rows than tokens.
TEST(Tokenizer, AnIdThatNoTokenHasIsAnEmptyText) {
  const Tokenizer tokenizer = Tokenizer::from_json(working_file(), "t");
  for (const TokenId id : {97, 4096, std::numeric_limits<TokenId>::max(), -1}) {
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{id}), "") << id;
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{95, id, 96, id}, true), "ab") << id;
    EXPECT_EQ(tokenizer.token_bytes(id), "") << id;
    EXPECT_FALSE(tokenizer.is_special(id)) << id;
  }
}

TEST(TokenizerGguf, RefusesByName) {
  GgufVocabulary good;
  good.model = "gpt2";
  good.pre = "smollm";
  good.tokens = {"a", "b", "ab"};
  good.token_types = {1, 1, 1};
  good.merges = {"a b"};
  EXPECT_EQ(Tokenizer::from_gguf(good, "g").encode("ab"), (std::vector<TokenId>{2}));
  const auto refused = [&](auto change, const char* expected) {
    GgufVocabulary bad = good;
    change(bad);
    try {
      Tokenizer::from_gguf(bad, "model.gguf");
      ADD_FAILURE() << "accepted: " << expected;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  };
  refused([](auto& v) { v.model = "rwkv"; }, "\"rwkv\"");
  refused([](auto& v) { v.pre = "kimi-k2"; }, "\"kimi-k2\"");
  refused([](auto& v) { v.scores = {1.0}; }, "scores");
  refused([](auto& v) { v.scores = {1.0, std::nan(""), 0.0}; }, "score is nan");
  refused([](auto& v) { v.scores = {1.0, 0.0, HUGE_VAL}; }, "score is inf");
  for (const char* model : {"llama", "t5", "bert"}) {
    refused([&](auto& v) { v.model = model, v.unknown_id = 3; }, "an unknown token is asked for, but its id is 3 of 3");
  }
  refused([](auto& v) { v.tokens[1] = "\xFF"; }, "UTF-8");
  refused([](auto& v) { v.model = "t5", v.precompiled_charsmap = "abcdef"; }, "charsmap");
  refused([](auto& v) { v.tokens[1] = "a"; }, "twice");
  refused([](auto& v) { v.token_types.pop_back(); }, "token types");
  refused([](auto& v) { v.merges = {"ab"}; }, "is not a pair");
  refused([](auto& v) { v.merges = {"a c"}; }, "\"c\"");
  refused([](auto& v) { v.add_bos = true; }, "BOS");
  refused(
      [](auto& v) {
        v.tokens.clear();
        v.token_types.clear();
        v.merges.clear();
      },
      "empty");
}

// Both orders of "b" and "bb" have the same sum in float; in double the second one offered would win by the rounding of
// the first. Numbers and answer are those of sentencepiece 0.2.3 for a model that it trained.
TEST(Unigram, EqualSumsKeepTheFirst) {
  Unigram::Rules rules;
  rules.unknown = 0;
  rules.single_precision = true;
  const Unigram unigram({{"a", 1, -43.761688232421875}, {"b", 2, -11.246051788330078}, {"bb", 3, -11.246088027954102}},
                        rules, "m");
  std::vector<TokenId> ids;
  unigram.encode("abbb", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 2, 3}));
}

std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// of a ModelProto; type: 1 normal, 2 unknown, 4 user-defined.
std::string piece(const std::string& text, float score, char type) {
  std::string number(sizeof score, '\0');
  std::memcpy(number.data(), &score, sizeof score);
  return field(1, field(1, text) + "\x15" + number + "\x18" + type);
}

// "at" and "her" together are better than "a", "the" with the best piece's score (-1.9 per byte), which user-defined
// pieces had before 0.2.2, and worse with the score they have now. The answers are those of sentencepiece 0.2.3.
TEST(SentencePiece, AUserDefinedPieceIsTakenForItself) {
  std::string model = piece("<unk>", 0, 2) + piece("the", 0, 4);
  const std::pair<const char*, float> normal[] = {
      {"\u2581", -1.90967011F}, {"r", -6.15531158F}, {"a", -4.87443495F}, {"at", -8.46905518F},
      {"her", -8.15080547F},    {"t", -5.0F},        {"h", -5.5F},        {"e", -4.0F}};
  for (const auto& [text, score] : normal) model += piece(text, score, 1);
  model += field(2, "\x18\x01") + field(3, field(1, "identity") + "\x18\x01\x20\x01\x28\x01");
  const Tokenizer tokenizer = Tokenizer::from_sentencepiece(model, "m.model", {});
  std::vector<TokenId> rather, twice;
  EncodeOptions plain;
  plain.add_special_tokens = false;
  tokenizer.encode("rather", plain, rather);
  tokenizer.encode("the the", plain, twice);
  EXPECT_EQ(rather, (std::vector<TokenId>{2, 3, 4, 1, 3}));
  EXPECT_EQ(twice, (std::vector<TokenId>{2, 1, 2, 1}));
}

// Words of any length, merged by the definition: always the pair of the lowest rank, among equal ranks the leftmost.
// There are few symbols and shared ranks, so that neighbours compete.
TEST(MergeTable, IsTheDefinition) {
  std::mt19937 random(7);
  for (const std::size_t length : {5, 24, 25, 300, 8192, 8193, 9000}) {
    MergeTable table;
    std::map<std::pair<TokenId, TokenId>, MergeTable::Merge> merges;
    table.reserve(200);
    for (TokenId made = 3; made < 60; ++made) {
      const auto below = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(std::min(made, 12))); };
      const std::pair<TokenId, TokenId> pair = {below(), below()};
      // A symbol has its rank whatever it is made of, as a token of SentencePiece has.
      const MergeTable::Merge merge{static_cast<std::uint32_t>(made % 12 * 5 % 7), made % 12};
      if (merges.emplace(pair, merge).second) table.add(pair.first, pair.second, merge);
    }
    std::vector<TokenId> symbols(length), expected;
    for (TokenId& symbol : symbols) symbol = static_cast<TokenId>(random() % 3);
    expected = symbols;
    for (;;) {
      const MergeTable::Merge* best = nullptr;
      std::size_t place = 0;
      for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
        const auto found = merges.find({expected[i], expected[i + 1]});
        if (found == merges.end() || (best != nullptr && found->second.rank >= best->rank)) continue;
        best = &found->second;
        place = i;
      }
      if (best == nullptr) break;
      expected[place] = best->id;
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
    table.apply(symbols);
    EXPECT_EQ(symbols, expected) << length << " symbols";
  }
}

// Found by tests/fuzz/tokenizer_json.cpp: two spaces are stripped at the beginning of a text, not at the beginning of
// later parts.
TEST(StreamingDecoder, PartsAreTheWholeWhereTwoSpacesAreStripped) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":2,"stop":0}]},)"
      R"("model":{"type":"BPE","vocab":{" ":0,"a":1,"b":2},"merges":[]}})",
      "t.json");
  for (const std::vector<TokenId>& ids :
       {std::vector<TokenId>{0, 1, 0, 0, 2}, {1, 0, 0, 0, 2, 0}, {0, 0, 0, 0, 0, 1}, {0, 1, 0, 2, 0, 0}}) {
    StreamingDecoder decoder(tokenizer);
    std::string parts;
    for (const TokenId id : ids) parts += decoder.push(id);
    EXPECT_EQ(parts + decoder.finish(), tokenizer.decode(ids));
  }
}

}  // namespace tokenizer_test
}  // namespace magister
