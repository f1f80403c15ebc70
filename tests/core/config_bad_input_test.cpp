// Every wrong experiment that we could think of: position, key and reason must be named exactly. The schema below
// replaces the real one, so that a change of keys does not disturb these cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <sstream>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/core/error.h"

namespace magister {
namespace config_bad_input_test {

void read_schema(ConfigDocument& document) {
  ConfigNode root = document.root();
  root.text("name");
  root.integer("seed", 0, 0);
  ConfigNode model = root.section("model");
  model.text("path");
  model.choice("dtype", {"auto", "f32", "bf16", "f16"}, "auto");
  model.number("scale", 1.0, 0.0, 2.0);
  ConfigNode layout = root.section("layout");
  layout.integer_or_auto("gpus_per_group", 1, 64);
  if (layout.is_list("devices")) {
    layout.integers("devices", 0, 63);
  } else {
    layout.choice("devices", {"auto", "cpu"}, "auto");
  }
  layout.boolean("verify", true);
  for (ConfigNode& task : root.sections("tasks")) {
    task.choice("task", {"teacher_logits", "generate"}, "teacher_logits");
    task.integer("top_k", 64, 1, 1000);
    task.texts("paths");
    task.optional_integer("limit", 0);
    if (task.has("dataset")) task.section("dataset").optional_integer("records", 0);
  }
}

// CPU time of this process: other processes on the machine do not count.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The faults of a text, one a line, or "".
std::vector<std::string> faults_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    ConfigDocument document(text, "e.yaml", overrides);
    read_schema(document);
    document.finish();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig) << error.what();
    std::vector<std::string> lines;
    std::istringstream stream(error.what());
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  return {};
}

// "<where>: <problem> (<why>); <what to do>"
void expect_grammar(const std::string& line) {
  const std::size_t close = line.rfind("); ");
  ASSERT_NE(close, std::string::npos) << line;
  EXPECT_NE(line.rfind(" (", close), std::string::npos) << line;
  EXPECT_GT(line.size(), close + 5) << line;
}

const std::string kGood = "name: a\nmodel: {path: m}\ntasks:\n  - paths: [x]\n";

struct Case {
  const char* what;
  std::string text;
  // Each entry: the beginning of a line up to " ... ", then after "|" a part of its rest.
  std::vector<std::string> expected;
};

std::string tail_of(std::string text) { return kGood + text; }
std::string deep_list(int depth) {
  return tail_of("layout: " + std::string(depth, '[') + std::string(depth, ']') + "\n");
}

// clang-format off: a table
const std::vector<Case>& cases() {
  static const std::vector<Case> cases = {
      {"empty", "", {"e.yaml:1:1: |nothing but space"}}, {"comments only", "# a\n  # b\n", {"e.yaml:1:1: |nothing but space"}},
      {"a single value", "hello\n", {"e.yaml:1:1: |a single value is given"}},
      {"a list", "- a\n- b\n", {"e.yaml:1:1: |a list is given"}},
      {"null document", "~\n", {"e.yaml:1:1: |nothing is given"}},
      {"not UTF-8", "name: a\nseed: \xFF\n", {"e.yaml:2:7: |byte \\xFF is not valid UTF-8"}},
      {"overlong UTF-8", "name: \xC0\xAF\n", {"e.yaml:1:7: |byte \\xC0 is not valid UTF-8"}},
      {"surrogate in UTF-8", "name: \xED\xA0\x80\n", {"e.yaml:1:7: |byte \\xED is not valid UTF-8"}},
      {"UTF-16", std::string("n\0a\0", 4), {"e.yaml:1:2: |control character \\x00"}},
      {"NUL", std::string("name: a\0b\n", 10), {"e.yaml:1:8: |control character \\x00"}},
      {"end of transmission", "name: a\n\x04seed: 1\n", {"e.yaml:2:1: |control character \\x04"}},
      {"escape sequence", "name: \x1B[31m\n", {"e.yaml:1:7: |control character \\x1B"}},
      {"C1 control", "name: \xC2\x9B\n", {"e.yaml:1:7: |control character \\xC2\\x9B"}},
      {"lone carriage return", "name: a\rseed: 1\n", {"e.yaml:1:8: |control character \\x0D"}},
      {"escaped control", "name: \"a\\e[0m\"\n", {"e.yaml:1:7: name: |control character \\x1B"}},
      {"escaped C1 control", "name: \"a\\x9b[0m\"\n", {"e.yaml:1:7: name: |control character \\xC2\\x9B"}},
      {"escaped C1 control in a key", "\"a\\u0080\": 1\n", {"|control character \\xC2\\x80"}},
      {"escaped NUL", "name: \"a\\0\"\n", {"e.yaml:1:7: name: |control character \\x00"}},
      {"tab as indentation", "model:\n\tpath: m\n", {"e.yaml:2:1: |a tab in the indentation"}},
      {"bracket left open", "name: [a\n", {"e.yaml:2:1: |not valid YAML"}},
      {"brace left open", "name: a\nmodel: {path: m\n", {"e.yaml:3:1: |not valid YAML"}},
      {"quote left open", "name: \"a\nmodel: {path: m}\n", {"|not valid YAML"}},
      {"two values on one line", "name: a: b\n", {"e.yaml:1:8: |not valid YAML"}},
      {"wrong indentation", "name: a\n  seed: 1\n", {"e.yaml:2:7: |not valid YAML"}},
      {"unknown directive value", "%YAML 9.1\n---\nname: a\n", {"|not valid YAML"}},
      {"two documents", "name: a\n---\nname: b\n", {"e.yaml:2:1: |a second document begins"}},
      {"anchor", "name: &n a\nmodel: {path: m}\n", {"e.yaml:1:7: name: |an anchor &n"}},
      {"anchor on a map", "name: a\nmodel: &m {path: m}\n", {"e.yaml:2:8: model: |an anchor &m"}},
      {"alias bomb",
       "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: &d [*c,*c]\n",
       {"e.yaml:1:4: a: |an anchor &a"}},
      {"alias without anchor", "name: *n\n", {"|"}},
      {"merge key", "name: a\nmodel:\n  <<: {path: m}\n", {"e.yaml:3:3: model.<<: |a merge key <<"}},
      {"tag", "name: !!str a\n", {"e.yaml:1:7: name: |the tag tag:yaml.org,2002:str"}},
      {"foreign tag", "name: a\nmodel: !python/object {path: m}\n", {"e.yaml:2:8: model: |the tag !python/object"}},
      {"list as key", "? [a, b]\n: c\n", {"e.yaml:1:3: |a list or a map where a key is expected"}},
      {"33 levels in rows", tail_of("a:\n" + [] { std::string s; for (int i = 1; i < 40; ++i) s += std::string(static_cast<std::size_t>(i), ' ') + "a:\n"; return s; }()),
       {"e.yaml:37:33: |nested deeper than 32 levels"}},
      {"33 levels", deep_list(33), {"e.yaml:5:41: |nested deeper than 32 levels"}},
      {"a million brackets", tail_of("layout: " + std::string(1'000'000, '[')), {"e.yaml:5:41: |nested deeper than 32 levels"}},
      {"lists in lists in lists", tail_of("layout: " + [] { std::string s; for (int i = 0; i < 200'000; ++i) s += "[a,"; return s; }()), {"e.yaml:5:|"}},
      {"too many bytes", tail_of(std::string(1 << 20, '#')), {"e.yaml:1:1: |1048623 bytes of text"}},
      {"too many values", tail_of("x: [" + std::string(400'000, ',') + "]\n"), {"|"}},
      {"too many short items", tail_of("x:\n" + [] { std::string s; for (int i = 0; i < 150'000; ++i) s += "- 1\n"; return s; }()),
       {"e.yaml:99997:3: x.99991: |more than 100000 values"}},
      // Keys.
      {"unknown key", tail_of("sed: 1\n"), {"e.yaml:5:1: sed: |did you mean seed?"}},
      {"unknown key far from all", tail_of("frobnicate: 1\n"), {"e.yaml:5:1: frobnicate: |unknown key (it would change nothing; known here: name, seed"}},
      {"unknown key in a section", "name: a\nmodel: {pth: m}\ntasks: [{paths: x}]\n",
       {"e.yaml:2:1: model.path: |the key is missing", "e.yaml:2:9: model.pth: |did you mean path?"}},
      {"unknown key in a list", tail_of("    topk: 3\n"), {"e.yaml:5:5: tasks.0.topk: |did you mean top_k?"}},
      {"unknown section", tail_of("layuot:\n  devices: cpu\n"), {"e.yaml:5:1: layuot: |did you mean layout?"}},
      {"key in another case", tail_of("Seed: 1\n"), {"e.yaml:5:1: Seed: |did you mean seed?"}},
      {"secret", tail_of("api_token: abc\n"), {"e.yaml:5:1: api_token: |unknown key"}},
      {"control character in a key", tail_of("\"a\\nb\": 1\n"), {"e.yaml:5:1: a\\x0Ab: |unknown key"}},
      {"repeated key", "name: a\nseed: 1\nmodel: {path: m}\nseed: 2\ntasks: [{paths: x}]\n",
       {"e.yaml:4:1: seed: |the key is repeated, first at 2:1"}},
      {"repeated key in a flow map", "name: a\nmodel: {path: m, path: n}\ntasks: [{paths: x}]\n",
       {"e.yaml:2:18: model.path: |first at 2:9"}},
      {"repeated section", tail_of("model: {path: n}\n"), {"e.yaml:5:1: model: |first at 2:1"}},
      {"repeated in quotes", tail_of("\"name\": b\n"), {"e.yaml:5:1: name: |first at 1:1"}},
      {"key without a name", tail_of(": 1\n"), {"e.yaml:5:1: |a key without a name"}},
      {"null as key", tail_of("~: 1\n"), {"e.yaml:5:1: |a key without a name"}},
      {"missing keys", "seed: 1\n",
       {"e.yaml:1:1: name: |the key is missing", "e.yaml:1:1: model.path: |the key is missing", "e.yaml:1:1: tasks: |the key is missing"}},
      // Values.
      {"octal integer", tail_of("seed: 010\n"), {"e.yaml:5:7: seed: |010 has a leading zero (some readers take it for octal); write 10"}},
      {"negative octal", tail_of("seed: -007\n"), {"e.yaml:5:7: seed: |write -7"}},
      {"hexadecimal", tail_of("seed: 0x10\n"), {"e.yaml:5:7: seed: |0x10 is not decimal"}},
      {"YAML 1.2 octal", tail_of("seed: 0o10\n"), {"e.yaml:5:7: seed: |0o10 is not decimal"}},
      {"underscore", tail_of("seed: 1_000\n"), {"e.yaml:5:7: seed: |1_000 has marks between its digits"}},
      {"thousands comma", tail_of("seed: 1,000\n"), {"e.yaml:5:7: seed: |1,000 has marks between its digits"}},
      {"plus sign", tail_of("seed: +5\n"), {"e.yaml:5:7: seed: |+5 has a plus sign"}},
      {"fraction for an integer", tail_of("seed: 5.0\n"), {"e.yaml:5:7: seed: |5.0 is not a whole number"}},
      {"exponent for an integer", tail_of("seed: 1e3\n"), {"e.yaml:5:7: seed: |1e3 is not a whole number"}},
      {"quoted integer", tail_of("seed: \"5\"\n"), {"e.yaml:5:7: seed: |remove the quotes"}},
      {"sexagesimal", tail_of("seed: 1:30\n"), {"e.yaml:5:7: seed: |written in sixties"}},
      {"word for an integer", tail_of("seed: many\n"), {"e.yaml:5:7: seed: |\"many\" is not a whole number"}},
      {"beyond 64 bits", tail_of("seed: 9223372036854775808\n"), {"e.yaml:5:7: seed: |does not fit 64 bits"}},
      {"out of range", tail_of("    top_k: 0\n"), {"e.yaml:5:12: tasks.0.top_k: |0 is out of range (1 to 1000 is possible)"}},
      {"below the least", tail_of("seed: -1\n"), {"e.yaml:5:7: seed: |-1 is out of range (at least 0 is needed)"}},
      {"auto misspelt", tail_of("layout: {gpus_per_group: Auto}\n"), {"e.yaml:5:26: layout.gpus_per_group: |\"Auto\" is not a whole number"}},
      {"no value", tail_of("seed:\n"), {"e.yaml:5:1: seed: |the key has no value"}},
      {"null value", tail_of("seed: null\n"), {"e.yaml:5:1: seed: |the key has no value"}},
      {"list for an integer", tail_of("seed: [1]\n"), {"e.yaml:5:7: seed: |a list is given"}},
      {"map for a text", "name: {a: b}\nmodel: {path: m}\ntasks: [{paths: x}]\n", {"e.yaml:1:7: name: |a map is given"}},
      {"empty text", "name: \"\"\nmodel: {path: m}\ntasks: [{paths: x}]\n", {"e.yaml:1:7: name: |the text is empty"}},
      {"yes as a text", "name: yes\nmodel: {path: m}\ntasks: [{paths: x}]\n", {"e.yaml:1:7: name: |yes as a text (some readers of YAML take it for a truth value"}},
      {"octal as a text", "name: 010\nmodel: {path: m}\ntasks: [{paths: [0x1F, a]}]\n", {"e.yaml:1:7: name: |write it in quotes: '010'", "e.yaml:3:18: tasks.0.paths.0: |0x1F as a text"}},
      {"yes", tail_of("layout: {verify: yes}\n"), {"e.yaml:5:18: layout.verify: |yes is not a truth value here (readers of YAML disagree on it); write true"}},
      {"off", tail_of("layout: {verify: off}\n"), {"e.yaml:5:18: layout.verify: |write false"}},
      {"True", tail_of("layout: {verify: True}\n"), {"e.yaml:5:18: layout.verify: |write true"}},
      {"1 for true", tail_of("layout: {verify: 1}\n"), {"e.yaml:5:18: layout.verify: |write true"}},
      {"quoted true", tail_of("layout: {verify: 'true'}\n"), {"e.yaml:5:18: layout.verify: |write true"}},
      {"word for a truth value", tail_of("layout: {verify: maybe}\n"), {"e.yaml:5:18: layout.verify: |write true or false"}},
      {"not a number", "name: a\nmodel: {path: m, scale: .nan}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.scale: |"}},
      {"infinity", "name: a\nmodel: {path: m, scale: .inf}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.scale: |"}},
      {"number beyond doubles", "name: a\nmodel: {path: m, scale: 1e999}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.scale: |does not fit a 64-bit number"}},
      {"number out of range", "name: a\nmodel: {path: m, scale: 2.5}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.scale: |2.5 is out of range (0 to 2 is possible)"}},
      {"point without digit", "name: a\nmodel: {path: m, scale: .5}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.scale: |begins with a point"}},
      {"choice misspelt", "name: a\nmodel: {path: m, dtype: f23}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.dtype: |did you mean f32?"}},
      {"choice unknown", "name: a\nmodel: {path: m, dtype: quadruple}\ntasks: [{paths: x}]\n", {"e.yaml:2:25: model.dtype: |known: auto, f32, bf16, f16"}},
      {"text in a list of numbers", tail_of("layout: {devices: [0, x]}\n"), {"e.yaml:5:23: layout.devices.1: |\"x\" is not a whole number"}},
      {"list in a list of numbers", tail_of("layout: {devices: [[0]]}\n"), {"e.yaml:5:20: layout.devices.0: |a list is given"}},
      {"empty list of texts", "name: a\nmodel: {path: m}\ntasks: [{paths: []}]\n", {"e.yaml:3:17: tasks.0.paths: |the list is empty"}},
      {"nothing in a list of texts", "name: a\nmodel: {path: m}\ntasks: [{paths: [a, ]}]\n", {}},
      {"null in a list of texts", "name: a\nmodel: {path: m}\ntasks: [{paths: [a, ~]}]\n", {"e.yaml:3:21: tasks.0.paths.1: |the key has no value"}},
      {"value for a section", "name: a\nmodel: m\ntasks: [{paths: x}]\n", {"e.yaml:2:8: model: |a single value is given (a map of further keys is expected); write model: {path: m}"}},
      {"list for a section", "name: a\nmodel: [m]\ntasks: [{paths: x}]\n", {"e.yaml:2:8: model: |a list is given (a map"}},
      {"empty section", "name: a\nmodel:\ntasks: [{paths: x}]\n", {"e.yaml:2:1: model: |the key has no value (a map"}},
      {"map for a list", "name: a\nmodel: {path: m}\ntasks: {paths: x}\n", {"e.yaml:3:8: tasks: |a map is given (a list of maps"}},
      {"empty list", "name: a\nmodel: {path: m}\ntasks: []\n", {"e.yaml:3:8: tasks: |an empty list is given"}},
      {"values in a list of maps", "name: a\nmodel: {path: m}\ntasks: [x]\n", {"e.yaml:3:9: tasks.0: |a single value is given (a map is expected)"}},
      {"columns count code points", "name: a\nmodel: {\"path\": \"日本\", sale: 1}\ntasks: [{paths: x}]\n", {"e.yaml:2:23: model.sale: |did you mean scale?"}},
      {"all at once, in order", "seed: x\nname: a\nlayout: {verify: no}\nmodel: {path: m, dtyp: f32}\nbogus: 1\ntasks: [{paths: x, top_k: 1e2}]\n",
       {"e.yaml:1:7: seed: |", "e.yaml:3:18: layout.verify: |", "e.yaml:4:18: model.dtyp: |did you mean dtype?", "e.yaml:5:1: bogus: |", "e.yaml:6:27: tasks.0.top_k: |"}},
  };
  return cases;
}
// clang-format on

TEST(ConfigBadInput, NamesPlaceKeyAndReason) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.what);
    const double begin = processor_seconds();
    const std::vector<std::string> faults = faults_of(one.text);
    EXPECT_LT(processor_seconds() - begin, 60);  // 1 s is the most, also of what would grow without bound
    std::string all;
    for (const std::string& line : faults) all += line + "\n";
    ASSERT_EQ(faults.size(), one.expected.size()) << all;
    for (std::size_t i = 0; i < faults.size(); ++i) {
      const std::size_t bar = one.expected[i].find('|');
      const std::string begins = one.expected[i].substr(0, bar), holds = one.expected[i].substr(bar + 1);
      EXPECT_EQ(faults[i].substr(0, begins.size()), begins) << all;
      EXPECT_NE(faults[i].find(holds), std::string::npos) << all;
      expect_grammar(faults[i]);
    }
  }
}

// A key in the wrong map is named where it belongs.
TEST(ConfigBadInput, KeysOfTheMapAround) {
  const auto task = faults_of(tail_of("    dataset:\n      limit: 3\n"));
  ASSERT_EQ(task.size(), 1u);
  EXPECT_TRUE(task[0].starts_with("e.yaml:6:7: tasks.0.dataset.limit: ")) << task[0];
  EXPECT_TRUE(task[0].ends_with("did you mean tasks.0.limit?")) << task[0];
  const auto file = faults_of("name: a\nmodel: {path: m, tasks: x}\ntasks: [{paths: x}]\n");
  ASSERT_EQ(file.size(), 1u);
  EXPECT_TRUE(file[0].ends_with("did you mean tasks at the top of the file?")) << file[0];
  for (const char* text : {"name: a\nmodel: {path: m}\ntop_k: 3\ntasks: [{paths: x}]\n",
                           "name: a\nmodel: {path: m, top_k: 3}\ntasks: [{paths: x}]\n"}) {
    const auto of_a_task = faults_of(text);
    ASSERT_EQ(of_a_task.size(), 1u);
    EXPECT_TRUE(of_a_task[0].ends_with("did you mean tasks.0.top_k?")) << of_a_task[0];
  }
}

TEST(ConfigBadInput, TableIsLarge) { EXPECT_GE(cases().size(), 80u); }

TEST(ConfigBadInput, ManyFaultsAreCapped) {
  std::string text = kGood;
  for (int i = 0; i < 5000; ++i) text += fmt::format("k{}: 1\n", i);
  const auto faults = faults_of(text);
  ASSERT_EQ(faults.size(), 51u);
  EXPECT_NE(faults.back().find("4950 further faults"), std::string::npos);
}

TEST(ConfigBadInput, ManyKeysInOneMapAreNotQuadratic) {
  const auto seconds_of = [](int keys) {
    std::string text = kGood + "x:\n";
    for (int i = 0; i < keys; ++i) text += fmt::format("  k{}: 1\n", i);
    const double begin = processor_seconds();
    EXPECT_EQ(faults_of(text).size(), 1u);
    return processor_seconds() - begin;
  };
  // Eight times the keys: 8 times as long, or 64. The least of several measurements, because another process on the
  // same core lengthens some.
  double few = seconds_of(7'500), many = seconds_of(60'000);
  for (int again = 0; again < 3; ++again) {
    few = std::min(few, seconds_of(7'500));
    many = std::min(many, seconds_of(60'000));
  }
  EXPECT_LT(many, 25 * few);
}

// Whatever the bytes, the answer is a reading or a configuration error; never another exception, a crash or a hang.
TEST(ConfigBadInput, DamagedTextsAreReadOrRefused) {
  const std::string base =
      "name: a # c\nseed: 12\nmodel:\n  path: \"m\\n\"\n  dtype: 'f32'\nlayout: {devices: [0, 1], verify: true}\n"
      "tasks:\n- paths: |\n    x\n    y\n  top_k: 3\n";
  const std::string alphabet = "\n\n  \t:-?,[]{}#&*!|>'\"%@`~<=\\x0\r\x01\x7F\xC2\xFF\xE6";
  std::uint64_t state = 42;
  const auto draw = [&state](std::size_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::size_t>((state >> 33) % below);
  };
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = base;
    for (std::size_t edits = 1 + draw(4); edits > 0; --edits) {
      const std::size_t at = draw(text.size());
      const std::size_t kind = draw(4);
      if (kind == 0) text[at] = alphabet[draw(alphabet.size())];
      if (kind == 1) text.insert(at, 1, alphabet[draw(alphabet.size())]);
      if (kind == 2) text.erase(at, 1 + draw(8));
      if (kind == 3) text.insert(at, text.substr(draw(text.size()), 1 + draw(20)));
    }
    const auto faults = faults_of(text);
    for (const std::string& line : faults) {
      EXPECT_TRUE(line.starts_with("e.yaml:")) << line;
      EXPECT_EQ(printable(line, 4000), line);
    }
    refused += !faults.empty();
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_LT(refused, 20'000);
}

struct OverrideCase {
  std::vector<std::string> arguments;
  std::string begins, holds;
};

TEST(ConfigBadInput, ArgumentsAreNamed) {
  const std::vector<OverrideCase> cases = {
      {{"seed"}, "argument seed: ", "not of the form key.path=value"},
      {{"=1"}, "argument =1: ", "not of the form key.path=value"},
      {{"seed="}, "argument seed=: seed: ", "no value after the equals sign"},
      {{"seed=~"}, "argument seed=~: seed: ", "no value after the equals sign"},
      {{"seed=x"}, "argument seed=x: seed: ", "\"x\" is not a whole number"},
      {{"seed=010"}, "argument seed=010: seed: ", "write 10"},
      {{"sed=1"}, "argument sed=1: sed: ", "did you mean seed?"},
      {{"model.pth=x"}, "argument model.pth=x: model.pth: ", "did you mean path?"},
      {{"nothing.at.all=1"}, "argument nothing.at.all=1: nothing: ", "unknown key"},
      {{"name.x=1"}, "argument name.x=1: name.x: ", "name holds a single value"},
      {{"tasks.1.top_k=8"}, "argument tasks.1.top_k=8: tasks.1.top_k: ", "a list of 1 entries (there is no entry 1)"},
      {{"tasks.first.top_k=8"}, "argument tasks.first.top_k=8: tasks.first.top_k: ", "there is no entry first"},
      {{"tasks.-1.top_k=8"}, "argument tasks.-1.top_k=8: tasks.-1.top_k: ", "there is no entry -1"},
      {{"tasks..top_k=8"}, "argument tasks..top_k=8: ", "an empty step"},
      {{".seed=8"}, "argument .seed=8: ", "an empty step"},
      {{"seed.=8"}, "argument seed.=8: ", "an empty step"},
      {{"model={path: x}"}, "argument model={path: x}: model: ", "a map as value"},
      {{"model.path={{ x }} b"},
       "argument model.path={{ x }} b: model.path: ",
       "put quotes around it inside the shell's"},
      {{"model.path=a: b"}, "argument model.path=a: b: model.path: ", "a map as value"},
      {{"model.path={{ m }}"}, "argument model.path={{ m }}: model.path: ", "put quotes around it inside the shell's"},
      {{"model.path=[a"}, "argument model.path=[a: model.path: ", "close the bracket that was left open"},
      {{"model.path=&a b"}, "argument model.path=&a b: model.path: ", "an anchor"},
      {{"model.path=!!str b"}, "argument model.path=!!str b: model.path: ", "the tag"},
      {{"model.path=\x1B[0m"}, "argument model.path=\\x1B[0m: model.path: ", "control character \\x1B"},
      {{"seed=1", "seed=y"}, "argument seed=y: seed: ", "\"y\" is not a whole number"},
      {{"layout=cpu"}, "argument layout=cpu: layout: ", "a map of further keys is expected"},
      {{"model=x"},
       "argument model=x: model: ",
       "a single value is given (a map of further keys is expected); write model: {path: x}"},
  };
  for (const OverrideCase& one : cases) {
    SCOPED_TRACE(one.arguments.back());
    const auto faults = faults_of(kGood, one.arguments);
    ASSERT_EQ(faults.size(), 1u) << (faults.empty() ? "" : faults[1]);
    EXPECT_EQ(faults[0].substr(0, one.begins.size()), one.begins) << faults[0];
    EXPECT_NE(faults[0].find(one.holds), std::string::npos) << faults[0];
    expect_grammar(faults[0]);
  }
}

}  // namespace config_bad_input_test
}  // namespace magister
