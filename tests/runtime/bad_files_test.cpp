// Every field of a model's files, broken one at a time: missing, of another type, negative, huge, cyclic, truncated. A
// row of a table is a case: "field | value instead | words of the message". Each is refused with exit code 65 by one
// line that names the field.
#include "runtime/bad_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/scratch_folder.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/runtime/tokenizer_files.h"
#include "magister/text/chat_template.h"
#include "magister/text/tokenizer.h"
#include "runtime/bad_files_tables.h"

namespace magister {
namespace bad_files_test {

using nlohmann::json;
using test::ScratchFolder;

std::string trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

struct Row {
  std::string field, instead, words;
};

std::vector<Row> rows_of(std::string_view table) {
  std::vector<Row> rows;
  while (!table.empty()) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    const std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    const std::size_t first = line.find(" | "), last = line.rfind(" | ");
    if (first == std::string_view::npos) continue;
    EXPECT_LT(first, last) << line;
    rows.push_back({trimmed(line.substr(0, first)), trimmed(line.substr(first + 3, last - first - 3)),
                    trimmed(line.substr(last + 3))});
  }
  return rows;
}

void expect_refused(const Row& row, const std::function<void()>& read) {
  SCOPED_TRACE(row.field + " | " + row.instead);
  try {
    read();
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::kData) << message;
    EXPECT_NE(message.find(row.words), std::string::npos) << "\"" << row.words << "\" is not in: " << message;
    EXPECT_EQ(printable(message, 4000), message);
    EXPECT_NE(message.find('('), std::string::npos) << message;
    EXPECT_NE(message.find("; "), std::string::npos) << message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
  }
}

// The document with the field at this JSON pointer replaced ("missing": taken away).
std::string edited(const char* base, const Row& row) {
  json document = json::parse(base);
  const json::json_pointer place(row.field);
  if (row.instead == "missing") {
    document.at(place.parent_pointer()).erase(place.back());
  } else {
    document[place] = json::parse(row.instead);
  }
  return document.dump();
}

TEST(BadFiles, ConfigJson) {
  const ScratchFolder folder;
  EXPECT_NO_THROW(describe_config(folder.write("config.json", kConfigJson)));
  for (const Row& row : rows_of(kConfigRows))
    expect_refused(row, [&] { describe_config(folder.write("config.json", edited(kConfigJson, row))); });
  for (const Row& row : rows_of(kClassifierRows))
    expect_refused(row, [&] { describe_config(folder.write("config.json", edited(kClassifierJson, row))); });
}

TEST(BadFiles, TokenizerJson) {
  const auto read = [](const std::string& text) {
    const Tokenizer tokenizer = Tokenizer::from_json(text, "tokenizer.json");
    tokenizer.decode(tokenizer.encode("a b <s>"));
  };
  EXPECT_NO_THROW(read(kBpeJson));
  EXPECT_NO_THROW(read(kUnigramJson));
  for (const Row& row : rows_of(kBpeRows)) expect_refused(row, [&] { read(edited(kBpeJson, row)); });
  for (const Row& row : rows_of(kUnigramRows)) expect_refused(row, [&] { read(edited(kUnigramJson, row)); });
}

TEST(BadFiles, TekkenAndTiktoken) {
  const auto tekken = [](const std::string& text) { Tokenizer::from_tekken(text, "tekken.json"); };
  EXPECT_NO_THROW(tekken(tekken_json()));
  for (const Row& row : rows_of(kTekkenRows)) expect_refused(row, [&] { tekken(edited(tekken_json().c_str(), row)); });
  for (const Row& row : rows_of(kTiktokenRows)) {
    std::string list = tiktoken_list();
    const std::size_t at = list.find(row.field);
    ASSERT_NE(at, std::string::npos) << row.field;
    list.replace(at, row.field.size(), row.instead == "missing" ? "" : row.instead);
    expect_refused(row, [&] { Tokenizer::from_tiktoken(list, "tokenizer.model"); });
  }
}

TEST(BadFiles, ChatTemplates) {
  const json variables = json::parse(R"({"messages":[{"role":"user","content":"x"}],"l":[1,2]})");
  for (const Row& row : rows_of(kTemplateRows)) {
    expect_refused(row, [&] {
      RenderOptions options;
      options.max_steps = 100'000;
      options.max_bytes = 1 << 20;
      ChatTemplate::parse(row.instead, "t.jinja").render(variables, options);
    });
  }
}

// A GGUF model with one metadata pair replaced, added or taken away.
TEST(BadFiles, GgufMetadata) {
  const ScratchFolder folder;
  const auto read = [](const std::string& path) {
    const auto file = TensorFile::open(path);
    describe_model(path, *file);
    load_tokenizer(path, *file);
  };
  EXPECT_NO_THROW(read(folder.write("m.gguf", gguf_model("", ""))));
  for (const Row& row : rows_of(kGgufRows))
    expect_refused(row, [&] { read(folder.write("m.gguf", gguf_model(row.field, row.instead))); });
}

TEST(BadFiles, SafetensorsTensors) {
  const ScratchFolder folder;
  for (const Row& row : rows_of(kSafetensorsRows)) {
    const std::string header = edited(kSafetensorsHeader, row);
    const std::uint64_t size = header.size();
    const std::string file = std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(24, '\0');
    expect_refused(row, [&] { TensorFile::open(folder.write("model.safetensors", file)); });
  }
}

// The fields of a SentencePiece model: pieces, trainer_spec, normalizer_spec. Then the file cut at every byte.
TEST(BadFiles, SentencePiece) {
  const auto read = [](const std::string& bytes) {
    const Tokenizer tokenizer = Tokenizer::from_sentencepiece(bytes, "spiece.model", {});
    tokenizer.decode(tokenizer.encode("a b"));
  };
  const std::string good = sentencepiece_model("");
  EXPECT_NO_THROW(read(good));
  for (const auto& [what, words] : sentencepiece_cases())
    expect_refused({what, "", words}, [&, broken = sentencepiece_model(what)] { read(broken); });
  int refused = 0;
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    try {
      read(good.substr(0, cut));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << cut << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(good.size()) / 2);  // between fields a file is whole
}

TEST(BadFiles, TablesAreLarge) {
  std::size_t count = sentencepiece_cases().size();
  for (const char* table : {kConfigRows, kClassifierRows, kBpeRows, kUnigramRows, kTekkenRows, kTiktokenRows,
                            kTemplateRows, kGgufRows, kSafetensorsRows})
    count += rows_of(table).size();
  EXPECT_GE(count, 200u);
  std::printf("%zu cases\n", count);
}

}  // namespace bad_files_test
}  // namespace magister
