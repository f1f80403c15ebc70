// From the experiment's key to a compiled constraint: the key, the file that it names, its hash.
#include "magister/tasks/generate/constraint_config.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/core/utf8.h"
#include "tasks/generate/plain_schema.h"
#include "tasks/generate/schema_keywords.h"
#include "tasks/generate/text_readings.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Kind = ConstraintRule::Kind;
constexpr std::uintmax_t kMaxBytes = 1 << 20;  // schemas and grammars written by people have some kilobytes

bool is_path(const ConstraintConfig& config) {
  if (config.kind == Kind::kGrammar) return config.text.find("::=") == std::string::npos;
  const std::size_t first = config.text.find_first_not_of(" \t\r\n");
  return config.kind == Kind::kJsonSchema && (first == std::string::npos || config.text[first] != '{');
}

// The file's content; on an error, `problem` describes it.
std::string read_rule_file(const std::string& path, std::string& problem) {
  std::error_code error;
  const std::uintmax_t size = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (error || !fs::is_regular_file(path, error) || !file) {
    problem = fmt::format(
        "{}: no file that can be read (a text that is neither JSON nor a grammar is taken for a path); write "
        "the path or the rule itself",
        printable(path));
  } else if (size > kMaxBytes) {
    problem = fmt::format("{}: has {} bytes, more than {} (no rule has); name another file", printable(path), size,
                          kMaxBytes);
  } else {
    text.assign(std::istreambuf_iterator<char>(file), {});
    if (text.empty() || find_invalid_utf8(text) != text.size()) {
      problem = fmt::format("{}: {} (there is no rule in it); write the file again", printable(path),
                            text.empty() ? "is empty" : "is not valid UTF-8");
    }
  }
  return text;
}

}  // namespace

std::optional<ConstraintConfig> read_constraint(ConfigNode& node) {
  std::optional<ConfigNode> section = node.optional_section("constraint");
  if (!section) return std::nullopt;
  ConstraintConfig config;
  int kinds = 0;
  const auto take = [&](const char* key, Kind kind) {
    const std::vector<std::string> texts =
        kind == Kind::kChoice ? section->optional_texts(key) : std::vector<std::string>();
    const std::optional<std::string> text = kind == Kind::kChoice ? std::nullopt : section->optional_text(key);
    if (!section->has(key)) return;
    ++kinds;
    config.kind = kind;
    config.key = key;
    config.place = section->place(key);
    config.text = text.value_or("");
    config.choices = texts;
    for (std::size_t i = 0; i < config.choices.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (config.choices[i] == config.choices[j]) {
          section->reject(key, "\"{}\" is listed twice (it would not be chosen more often); remove one",
                          printable(config.choices[i]));
        }
      }
    }
  };
  take("json_schema", Kind::kJsonSchema);
  take("regex", Kind::kRegex);
  take("choice", Kind::kChoice);
  take("grammar", Kind::kGrammar);
  section->also_called("json_schema", {"json", "guided_json", "schema"});
  section->also_called("regex", {"guided_regex", "pattern"});
  section->also_called("choice", {"guided_choice", "choices"});
  section->also_called("grammar", {"guided_grammar", "gbnf", "ebnf"});
  if (kinds != 1) {
    section->reject(
        "", "{} of json_schema, regex, choice and grammar (a text keeps to exactly one rule); write one of them",
        kinds == 0 ? "none" : "several");
  }
  return config;
}

ConstraintRule load_constraint(const Communicator& world, const ConstraintConfig& config,
                               const std::string& task_name) {
  ConstraintRule rule{
      config.kind, config.text, config.choices,
      config.place.empty() ? fmt::format("tasks: {}: constraint.{}", task_name, config.key) : config.place};
  if (is_path(config)) {
    std::string problem;
    if (world.rank() == 0) rule.text = read_rule_file(config.text, problem);
    world.broadcast(problem, 0);
    MAGISTER_CHECK(problem.empty(), ExitCode::kConfig, "{}: {}", rule.name, problem);
    world.broadcast(rule.text, 0);
    rule.name += fmt::format(" ({})", printable(config.text));
  }
  if (rule.kind == Kind::kJsonSchema) check_schema_keywords(rule.text, rule.name);
  return rule;
}

std::string constraint_sha256(const ConstraintRule& rule) {
  Sha256 hash;
  hash.update(fmt::format("kind {}\n{} {}\n", static_cast<int>(rule.kind), rule.text.size(), rule.text));
  for (const std::string& choice : rule.choices) hash.update(fmt::format("{} {}\n", choice.size(), choice));
  return hash.hex();
}

std::unique_ptr<const Constraint> compile_constraint(const ConstraintRule& rule, const Tokenizer& tokenizer,
                                                     std::span<const TokenId> end_tokens, std::int64_t vocab_size) {
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (!tokenizer.is_special(token)) bytes[id] = tokenizer.token_bytes(token);
  }
  ConstraintRule plain = rule;
  if (rule.kind == Kind::kJsonSchema) {
    plain.text = plain_schema(rule.text, rule.name);
    plain.counts_texts = has_one_reading(rule.text);
  }
  return std::make_unique<const Constraint>(plain, bytes, end_tokens, vocab_size);
}

}  // namespace magister
