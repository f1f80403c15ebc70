// The results of reads, the effect of overrides, and that the resolved experiment read again is the same experiment.
#include "magister/core/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "magister/core/error.h"

namespace magister {
namespace config_test {

struct Everything {
  std::string name, dtype;
  std::int64_t seed = 0;
  std::optional<std::int64_t> group, limit;
  double scale = 0;
  bool verify = false;
  std::vector<std::string> paths;
  std::vector<std::int64_t> devices;
  std::string resolved;
};

Everything read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  ConfigDocument document(text, "e.yaml", overrides);
  Everything e;
  ConfigNode root = document.root();
  e.name = root.text("name");
  e.seed = root.integer("seed", 7, -5);
  ConfigNode model = root.section("model");
  e.dtype = model.choice("dtype", {"auto", "f32"}, "auto");
  e.scale = model.number("scale", 0.1, -1e9, 1e9);
  e.verify = model.boolean("verify", true);
  ConfigNode layout = root.section("layout");
  e.group = layout.integer_or_auto("group", 1);
  if (layout.is_list("devices")) e.devices = layout.integers("devices", 0);
  if (root.has("tasks")) {
    for (ConfigNode& task : root.sections("tasks")) {
      e.paths = task.texts("paths");
      e.limit = task.optional_integer("limit", 0);
    }
  }
  document.finish();
  e.resolved = document.resolved_yaml();
  return e;
}

TEST(Config, DefaultsAndValues) {
  const Everything plain = read("name: a\n");
  EXPECT_EQ(plain.seed, 7);
  EXPECT_EQ(plain.dtype, "auto");
  EXPECT_EQ(plain.scale, 0.1);
  EXPECT_TRUE(plain.verify);
  EXPECT_FALSE(plain.group);
  EXPECT_EQ(plain.resolved,
            "name: a\nseed: 7\nmodel:\n  dtype: auto\n  scale: 0.1\n  verify: true\nlayout:\n  group: auto\n");

  const Everything full = read(
      "# comment\nname: 'yes'\nseed: -3   # comment\nmodel: {dtype: f32, scale: 1e-5, verify: false}\r\n"
      "layout:\n  group: 4\n  devices: [0, 2]\ntasks:\n- paths:\n  - a b\n  - \"c\\\"d\"\n  limit: 0\n");
  EXPECT_EQ(full.name, "yes");
  EXPECT_EQ(full.seed, -3);
  EXPECT_EQ(full.scale, 1e-5);
  EXPECT_FALSE(full.verify);
  EXPECT_EQ(full.group, 4);
  EXPECT_EQ(full.devices, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(full.paths, (std::vector<std::string>{"a b", "c\"d"}));
  EXPECT_EQ(full.limit, 0);
  EXPECT_EQ(full.resolved,
            "name: \"yes\"\nseed: -3\nmodel:\n  dtype: f32\n  scale: 1.0e-05\n  verify: false\nlayout:\n  group: 4\n"
            "  devices: [0, 2]\ntasks:\n  - paths: [\"a b\", \"c\\\"d\"]\n    limit: 0\n");
}

TEST(Config, ByteOrderMarkAndWindowsLinesAreRead) { EXPECT_EQ(read("\xEF\xBB\xBFname: a\r\nseed: 3\r\n").seed, 3); }

TEST(Config, OverridesWinInOrder) {
  const std::string text = "name: a\nseed: 1\ntasks: [{paths: x}]\n";
  EXPECT_EQ(read(text, {"seed=2"}).seed, 2);
  EXPECT_EQ(read(text, {"seed=2", "seed=3"}).seed, 3);
  EXPECT_EQ(read(text, {"model.dtype=f32"}).dtype, "f32");  // neither the key nor its section is in the file
  EXPECT_EQ(read(text, {"tasks.0.limit=9"}).limit, 9);
  EXPECT_EQ(read(text, {"tasks.0.paths=[a, b]"}).paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read(text, {"tasks.0.paths=[a, b]", "tasks.0.paths.1=c"}).paths, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(read(text, {"layout.devices=[3]"}).devices, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(read(text, {"name='a: b'"}).name, "a: b");
  EXPECT_EQ(read(text, {"name=a=b"}).name, "a=b");
  EXPECT_EQ(read("name: a\nseed: what\n", {"seed=2"}).seed, 2);  // a wrong value that is replaced is no fault
}

// Every code point up to U+009F in each spelling of YAML: what is accepted reads back the same, and all controls but
// tab and line feed are refused.
TEST(Config, ResolvedReadsBackWhateverEscapesSpell) {
  for (int code = 0; code < 0xA0; ++code) {
    std::vector<std::string> spellings = {fmt::format("\\x{:02x}", code), fmt::format("\\u{:04X}", code),
                                          fmt::format("\\U{:08x}", code)};
    if (code == 0x85) spellings.push_back("\\N");
    if (code == '\t') spellings.push_back("\\t");
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    for (const std::string& spelling : spellings) {
      for (const std::string& text : {"name: \"a" + spelling + "b\"\n", "name: \"" + spelling + "\"\n"}) {
        Everything once;
        try {
          once = read(text);
        } catch (const Error& error) {
          EXPECT_TRUE(control && code != '\t' && code != '\n') << text << error.what();
          // yaml-cpp makes a byte that is no UTF-8 of \N.
          EXPECT_TRUE(std::string(error.what()).find("control character") != std::string::npos || spelling == "\\N")
              << error.what();
          continue;
        }
        EXPECT_FALSE(control && code != '\t' && code != '\n') << text;
        const Everything again = read(once.resolved);
        EXPECT_EQ(again.name, once.name) << text;
        EXPECT_EQ(again.resolved, once.resolved) << text;
      }
    }
  }
}

TEST(Config, ResolvedReadsBackTheSame) {
  const std::vector<std::string> names = {"a",
                                          "yes",
                                          "No",
                                          "null",
                                          "~",
                                          "1",
                                          "010",
                                          "1e5",
                                          "0x1F",
                                          ".5",
                                          ".inf",
                                          "-x",
                                          "- x",
                                          "a b",
                                          "a: b",
                                          "a #b",
                                          "#a",
                                          "*",
                                          "&a",
                                          "!a",
                                          "|",
                                          ">",
                                          "@a",
                                          "`a",
                                          "%a",
                                          "{a}",
                                          "[a]",
                                          "a,b",
                                          "'",
                                          "\"",
                                          "\\",
                                          "a\nb",
                                          "a\tb",
                                          "日本語",
                                          "1:30",
                                          "2024-01-01",
                                          ".deps/m.gguf",
                                          "../x",
                                          "./x",
                                          "...",
                                          "---",
                                          "=",
                                          "<<",
                                          "../*.jsonl",
                                          "true",
                                          "TRUE",
                                          "on",
                                          "Y",
                                          "é",
                                          "a\\nb",
                                          "😀",
                                          "/abs/path-1_2.x",
                                          "auto",
                                          " a ",
                                          "?"};
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    std::string quoted = "\"";
    for (const char c : name)
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : c == '\n' ? "\\n" : std::string(1, c);
    quoted += "\"";
    const Everything first = read("name: " + quoted + "\ntasks: [{paths: [" + quoted + "]}]\n");
    ASSERT_EQ(first.name, name);
    const Everything second = read(first.resolved);
    EXPECT_EQ(second.name, name);
    EXPECT_EQ(second.paths, first.paths);
    EXPECT_EQ(second.resolved, first.resolved);
  }
  for (const char* number : {"0", "-0.0", "1", "0.1", "1e-5", "1E+8", "123456789.25", "-3.0e-8"}) {
    const Everything first = read(std::string("name: a\nmodel: {scale: ") + number + "}\n");
    const Everything second = read(first.resolved);
    EXPECT_EQ(first.scale, second.scale) << number;
    EXPECT_EQ(first.resolved, second.resolved) << number;
  }
}

TEST(Config, EqualExperimentsAreEqualTexts) {
  const std::string one = read("seed: 3\nname: a\nlayout: {group: auto}\n").resolved;
  const std::string two = read("name: \"a\" # c\nmodel:\n    scale: 0.10\n    dtype: 'auto'\nseed: 3\n").resolved;
  EXPECT_EQ(one, two);
}

TEST(Config, PartsCanBeLeftOut) {
  ConfigDocument document("name: a\nrun: {x: 1}\ntasks: [{n: 1}, {n: 2}, {n: 3}]\n", "e.yaml");
  ConfigNode root = document.root();
  root.text("name");
  root.section("run").integer("x", 0, 0);
  root.outside_identity("run");
  for (ConfigNode& task : root.sections("tasks")) {
    task.integer("n", 0, 0);
    task.integer("m", 0, 0);
    task.outside_identity("m");
    task.resolve_as("m", 7);
  }
  document.finish();
  EXPECT_EQ(document.identity_yaml("tasks", 1), "name: a\ntasks:\n  - n: 2\n");
  EXPECT_NE(document.resolved_yaml().find("run:\n  x: 1\n"), std::string::npos);
  EXPECT_NE(document.resolved_yaml().find("  - n: 3\n    m: 7\n"), std::string::npos);
}

TEST(Config, AbandonedMapsAreNotSearched) {
  ConfigDocument document("task: unheard_of\nwhatever: 1\n", "e.yaml");
  ConfigNode root = document.root();
  root.reject("task", "unknown (why); do");
  root.abandon();
  try {
    document.finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "e.yaml:1:7: task: unknown (why); do");
  }
}

// JSON writes characters beyond U+FFFF as two escapes, and JSON is YAML.
TEST(Config, SurrogatePairsAreRead) {
  EXPECT_EQ(read("name: \"a \\ud83d\\ude00\\uD834\\uDD1E b\"\n").name, "a \xF0\x9F\x98\x80\xF0\x9D\x84\x9E b");
  EXPECT_EQ(read("{\"name\": \"\\\\\\ud83d\\ude00\"}").name, "\\\xF0\x9F\x98\x80");
  EXPECT_EQ(read("name: a\ntasks: [{paths: [\"\\ud83d\\ude00\", 'b', \"x\\ud83d\\ude01\"]}]\n").paths,
            (std::vector<std::string>{"\xF0\x9F\x98\x80", "b", "x\xF0\x9F\x98\x81"}));
  EXPECT_EQ(read("name: a\n", {"name=\"\\ud83d\\ude00\""}).name, "\xF0\x9F\x98\x80");
  // In these quoting styles there are no escapes, so no surrogate pairs are joined.
  EXPECT_EQ(read("name: '\\ud83d\\ude00'\n").name, "\\ud83d\\ude00");
  EXPECT_EQ(read("name: |-\n  \"\\ud83d\\ude00\"\n").name, "\"\\ud83d\\ude00\"");
  EXPECT_EQ(read("name: \"\\\\ud83d\\\\ude00\"\n").name, "\\ud83d\\ude00");
}

TEST(Config, HalfASurrogatePairIsRefused) {
  for (const char* bad :
       {"\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\ud83d\\ud83d", "\\ud83d x\\ude00", "\\ud83d\\\\ude00"}) {
    EXPECT_THROW(read(std::string("name: \"") + bad + "\"\n"), Error) << bad;
  }
}

// Joining makes the text shorter; columns are those of the file.
TEST(Config, ColumnsBehindSurrogatePairsAreThoseOfTheFile) {
  try {
    read("{\"name\": \"\\ud83d\\ude00\\ud83d\\ude00\", \"sed\": 1}\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("e.yaml:1:38: sed: unknown key")) << error.what();
  }
}

TEST(Config, PlacesAreKeptForLaterFaults) {
  ConfigDocument document("name: a\nmodel: {scale: 1.0}\n", "e.yaml", {"seed=3"});
  ConfigNode root = document.root();
  ConfigNode model = root.section("model");
  EXPECT_EQ(root.place("name"), "e.yaml:1:7: name");
  EXPECT_EQ(root.place("seed"), "argument seed=3: seed");
  EXPECT_EQ(model.place("scale"), "e.yaml:2:16: model.scale");
  EXPECT_EQ(model.place("dtype"), "e.yaml:2:1: model.dtype");  // absent: where its map is
  EXPECT_EQ(root.section("layout").place("group"), "e.yaml:1:1: layout.group");
}

// `false` where it is the default asks for nothing; whatever else is written where a key does not apply is a fault.
TEST(Config, ADefaultThatIsWrittenDownIsNoFaultWhereTheKeyDoesNotApply) {
  const auto faults = [](const std::string& value, bool fallback) {
    const ConfigDocument document("packing: " + value + "\n", "e.yaml");
    ConfigNode root = const_cast<ConfigDocument&>(document).root();
    EXPECT_EQ(root.only_if(false, "not here (why); do").boolean("packing", fallback), fallback);
    try {
      document.finish();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    EXPECT_EQ(document.resolved_yaml().find("packing"), std::string::npos);
    return std::string();
  };
  EXPECT_EQ(faults("false", false), "");
  for (const auto& [value, fallback] : {std::pair("true", false), std::pair("\"false\"", false),
                                        std::pair("[false]", false), std::pair("true", true), std::pair("false", true)})
    EXPECT_NE(faults(value, fallback).find("e.yaml:1:10: packing: not here (why); do"), std::string::npos) << value;
}

// A document read for its rules has every key that the reads name, also below absent maps.
TEST(Config, ReadsAreDeclarations) {
  const std::unique_ptr<ConfigDocument> document = ConfigDocument::for_rules("name: x\n");
  ConfigNode root = document->root();
  root.text("name");
  root.integer("seed", 7, -5, 9);
  root.number("rate", 1, 0, 10);
  root.range_end("rate", ConfigNode::RangeEnd::kAbove, 0);
  root.range_end("rate", ConfigNode::RangeEnd::kMost, 0.5);
  for (ConfigNode& entry : root.optional_sections("biases")) entry.number("bias", -1, 1);
  if (std::optional<ConfigNode> model = root.optional_section("model")) {
    model->choice("dtype", {"auto", "f32"}, "auto");
    model->only_if(false, "not here (why); do").integer_or_auto_among("group", {0, 32});
  }
  const ConfigRules& rules = document->rules();
  EXPECT_EQ(rules.names(), (std::vector<std::string>{"name", "seed", "rate", "biases", "model"}));
  EXPECT_TRUE(rules.find("name")->required);
  EXPECT_EQ(rules.find("seed")->fallback, "7");
  EXPECT_EQ(rules.find("seed")->rules[0].least, "-5");
  EXPECT_EQ(rules.find("seed")->rules[0].most, "9");
  EXPECT_FALSE(rules.find("seed")->rules[0].above_least);
  EXPECT_EQ(rules.find("rate")->rules[0].least, "0");
  EXPECT_EQ(rules.find("rate")->rules[0].most, "0.5");
  EXPECT_TRUE(rules.find("rate")->rules[0].above_least);
  EXPECT_TRUE(rules.find("biases")->is_list);
  EXPECT_TRUE(rules.find("biases")->maps[0]->find("bias")->required);
  EXPECT_EQ(rules.find("model")->maps[0]->names(), (std::vector<std::string>{"dtype", "group"}));
  EXPECT_EQ(rules.find("model")->maps[0]->find("group")->rules[1].numbers, (std::vector<std::int64_t>{0, 32}));
}

TEST(Config, ReadFileRefusesWhatIsNoFile) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("magister_config_{}", getpid());
  std::filesystem::create_directories(folder);
  const auto refused = [](const std::string& path) {
    try {
      ConfigDocument::read_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused(folder / "absent.yaml").find("No such file"), std::string::npos);
  EXPECT_NE(refused(folder).find("not a regular file"), std::string::npos);
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(refused(fifo).find("not a regular file"), std::string::npos);
  EXPECT_NE(refused("/dev/zero").find("not a regular file"), std::string::npos);
  std::ofstream(folder / "large.yaml") << std::string(ConfigDocument::kMaxBytes + 1, '#');
  EXPECT_NE(refused(folder / "large.yaml").find("larger than 1048576 bytes"), std::string::npos);
  std::ofstream(folder / "good.yaml") << "name: a\n";
  EXPECT_EQ(ConfigDocument::read_file(folder / "good.yaml"), "name: a\n");
  std::filesystem::remove_all(folder);
}

}  // namespace config_test
}  // namespace magister
