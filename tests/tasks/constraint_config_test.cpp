// From the experiment's key to masks over a real vocabulary: schemas that cannot be kept are refused by name, a file's
// content decides the hash, and with SmolLM2's 49,152 tokens every mask equals trying each token. Prints the cost of
// masks.
#include "magister/tasks/generate/constraint_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "magister/core/error.h"
#include "magister/runtime/tokenizer_files.h"
#include "tasks/generate/schema_keywords.h"

namespace magister {
namespace constraint_config_test {

using Kind = ConstraintRule::Kind;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::string refusal(const std::string& schema) {
  try {
    check_schema_keywords(schema, "constraint.json_schema");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    return error.what();
  }
  return "";
}

TEST(SchemaKeywords, AreReadOrRefused) {
  for (const char* schema :
       {R"({"type": "object", "properties": {"not": {"type": "string", "minLength": 2}}, "required": ["not"]})",
        R"({"type": ["null", "integer"], "enum": [null, 3, 4.0]})",
        R"({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1})",
        R"({"$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a", "title": "t"})", "true",
        R"({"type": "array", "prefixItems": [{"const": {"if": 1}}], "items": false})",
        R"({"type": "string", "enum": ["a"]})", R"({"anyOf": [{"type": "integer", "minimum": 3}, true]})"}) {
    EXPECT_EQ(refusal(schema), "") << schema;
  }
  for (const auto& [schema, words] : std::vector<std::pair<const char*, const char*>>{
           {R"({"type": "array", "uniqueItems": true})", "uniqueItems at the top"},
           {R"({"type": "object", "properties": {"a": {"not": {}}}})", "not at /properties/a"},
           {R"({"type": []})", "is not a type"},
           {R"({"enum": [[{"a": 12345678901234567890}]]})", "beyond 64 bits"},
           {R"({"properties": {}})", "properties without a type"},
           {R"({"maximum": 3})", "maximum without a type"},
           {R"({"type": "object", "required": ["z"], "properties": {"a": {}}})", "required names \"z\""},
           {R"({"type": "object", "patternProperties": {"a": {}}, "minProperties": 2})", "the same name twice"},
           {R"({"type": "object", "patternProperties": {"a": {}}, "properties": {"a": {}}})", "only one would"},
           {R"({"type": "string", "pattern": "a", "format": "date"})", "pattern with format"},
           {R"({"type": "string", "enum": ["a", 1]})", "the value 1"},
           {R"({"type": "integer", "const": 1.5})", "the value 1.5"},
           {R"({"$defs": {"a": {"if": true}}})", "if at /$defs/a"},
           {R"({"type": "array", "items": [{"type": "null"}]})", "is not a schema"},
           {R"({"type": "object", "anyOf": [true], "required": ["a"]})", "required next to anyOf"},
           {R"({"$ref": "#", "type": "object"})", "type next to $ref"},
           {R"({"anyOf": []})", "is not a list of schemas"},
           {R"({"type": )", "a schema is JSON"},
           {"3", "is not a schema"}}) {
    EXPECT_NE(refusal(schema).find(words), std::string::npos) << schema << ": " << refusal(schema);
  }
  std::string deep = "true";
  for (int i = 0; i < 200; ++i) deep = R"({"items": )" + deep + "}";
  EXPECT_NE(refusal(deep).find("deep"), std::string::npos);
}

TEST(LoadConstraint, TakesFilesAndHashesTheirContent) {
  const auto path =
      (std::filesystem::temp_directory_path() / ("magister-schema-" + std::to_string(::getpid()))).string();
  const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::binary) << text; };
  const Communicator alone;
  const ConstraintConfig from_file{Kind::kJsonSchema, "json_schema", path, {}};
  write(R"({"type": "null"})");
  const ConstraintRule null = load_constraint(alone, from_file, "answers");
  const ConstraintRule inlined =
      load_constraint(alone, {Kind::kJsonSchema, "json_schema", R"({"type": "null"})", {}}, "answers");
  EXPECT_EQ(constraint_sha256(null), constraint_sha256(inlined));
  write(R"({"type": "boolean"})");
  EXPECT_NE(constraint_sha256(null), constraint_sha256(load_constraint(alone, from_file, "answers")));
  for (const std::string& bad : {std::string(), std::string("\xFF"), std::string((1 << 20) + 1, ' ')}) {
    write(bad);
    EXPECT_THROW(load_constraint(alone, from_file, "answers"), Error);
  }
  std::filesystem::remove(path);
  EXPECT_THROW(load_constraint(alone, from_file, "answers"), Error);
  EXPECT_NE(constraint_sha256({Kind::kChoice, "", {"a", "b"}, ""}), constraint_sha256({Kind::kChoice, "", {"ab"}, ""}));
}

// Masks of one long valid answer, token by token.
TEST(RealVocabulary, MasksAreExactAndCheap) {
  const char* root = std::getenv("MAGISTER_SOURCE_DIR");
  const std::string model = std::string(root != nullptr ? root : ".") + "/.deps/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  ASSERT_TRUE(std::filesystem::exists(model)) << model << ": scripts/setup.sh brings it";
  const Tokenizer tokenizer = load_tokenizer(model);
  const std::int64_t V = 49152;
  const std::vector<TokenId> ends{tokenizer.token_to_id("<|im_end|>")};
  const ConstraintRule rule{Kind::kJsonSchema,
                            R"({"type": "object", "properties": {"items": {"type": "array", "minItems": 1, "items":
    {"type": "object", "properties": {"question": {"type": "string"}, "choices": {"type": "array", "items": {"type": "string"},
    "minItems": 4, "maxItems": 4}, "key": {"enum": ["A", "B", "C", "D"]}, "weight": {"type": "number"}},
    "required": ["question", "choices", "key", "weight"]}}}, "required": ["items"]})",
                            {},
                            "constraint.json_schema"};
  const std::string answer =
      R"({"items": [{"question": "What does \"plan\" mean - größer, 数据?", "choices": ["The list of units", )"
      R"("a shard", "the world", "none\nof these"], "key": "B", "weight": 1.5e-3}, {"question": "", "choices": ["1", "2", "3", "4"], )"
      R"("key": "A", "weight": -20}]})";
  auto begin = Clock::now();
  const auto constraint = compile_constraint(rule, tokenizer, ends, V);
  std::printf("compiled in %.0f ms\n", microseconds_since(begin) / 1000);
  std::vector<TokenId> ids = tokenizer.encode(answer, {.add_special_tokens = false});
  ids.push_back(ends[0]);
  std::vector<double> costs;
  for (int round = 0; round < 20; ++round) {
    ConstraintState state(*constraint);
    for (const TokenId id : ids) {
      begin = Clock::now();
      const auto mask = state.allowed();
      costs.push_back(microseconds_since(begin));
      const auto i = static_cast<std::size_t>(id);
      ASSERT_TRUE(!mask.empty() && (mask[i / 64] >> (i % 64) & 1) != 0) << "token " << id;
      ASSERT_TRUE(state.accept(id));
    }
    EXPECT_TRUE(state.finished());
  }
  std::sort(costs.begin(), costs.end());
  std::printf("%zu masks of %ld tokens: median %.1f us, p99 %.1f us, longest %.1f us\n", costs.size(),
              static_cast<long>(V), costs[costs.size() / 2], costs[costs.size() * 99 / 100], costs.back());
  // Trying a token takes a fresh walk, so a few places and every fifth token, or this would take minutes.
  for (const std::size_t place : {std::size_t{0}, std::size_t{5}, ids.size() / 2, ids.size() - 2}) {
    ConstraintState state(*constraint);
    for (std::size_t i = 0; i < place; ++i) state.accept(ids[i]);
    const auto mask = state.allowed();
    for (std::size_t id = place % 5; id < static_cast<std::size_t>(V); id += 5) {
      ConstraintState other(*constraint);
      for (std::size_t i = 0; i < place; ++i) other.accept(ids[i]);
      const auto token = static_cast<TokenId>(id);
      ASSERT_EQ((mask[id / 64] >> (id % 64) & 1) != 0, !tokenizer.is_special(token) && other.accept(token))
          << id << " at " << place;
    }
  }
}

}  // namespace constraint_config_test
}  // namespace magister
