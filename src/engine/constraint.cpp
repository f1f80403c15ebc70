// xgrammar behind our types. It is built to hand us its warnings (XGRAMMAR_LOG_CUSTOMIZE): a part of a schema that it
// would ignore is an error here, since texts that do not match what was asked for would come out silently.
#include "magister/engine/constraint.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <stdexcept>

#include "magister/core/error.h"

namespace {

// Set while this thread compiles. The library compiles on the calling thread (max_threads = 1).
thread_local std::vector<std::string>* warnings_of_compilation = nullptr;

}  // namespace

namespace xgrammar {

// Both are asked for by the library. Level 2 is a warning; what is below is for its makers.
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level >= 2 && warnings_of_compilation != nullptr) warnings_of_compilation->push_back(message);
}
[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) { throw std::runtime_error(message); }

}  // namespace xgrammar

namespace magister {
namespace {

using Kind = ConstraintRule::Kind;

// "root ::= "a" | "b"" with every byte that is not plain ASCII text escaped or left as UTF-8.
std::string grammar_of_choices(const std::vector<std::string>& choices) {
  std::string grammar = "root ::= ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    grammar += i == 0 ? "\"" : " | \"";
    for (const char c : choices[i]) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        grammar += {'\\', c};
      } else if (byte < 0x20 || byte == 0x7F) {
        grammar += fmt::format("\\x{:02x}", byte);
      } else {
        grammar += c;
      }
    }
    grammar += '"';
  }
  return grammar;
}

// The library's "." matches line ends too, Python's and JavaScript's do not.
std::string regex_without_line_ends(const std::string& regex) {
  std::string plain;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      plain += {c, regex[++i]};
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    if (c == '.' && !in_class) {
      plain += "[^\\n\\r]";
    } else {
      plain += c;
    }
  }
  return plain;
}

xgrammar::Grammar grammar_of(const ConstraintRule& rule) {
  switch (rule.kind) {
    case Kind::kJsonSchema: return xgrammar::Grammar::FromJSONSchema(rule.text, /*any_whitespace=*/false);
    case Kind::kRegex: return xgrammar::Grammar::FromRegex(regex_without_line_ends(rule.text));
    case Kind::kChoice: return xgrammar::Grammar::FromEBNF(grammar_of_choices(rule.choices));
    case Kind::kGrammar: break;
  }
  return xgrammar::Grammar::FromEBNF(rule.text);
}

// The library's messages may show whole schemas over many lines.
std::string one_line(std::string words) {
  while (!words.empty() && (words.back() == '\n' || words.back() == '.')) words.pop_back();
  return printable(words, 400);
}

}  // namespace

struct Constraint::Compiled {
  xgrammar::CompiledGrammar grammar;
  std::int64_t vocab_size;
};

struct ConstraintState::Matcher {
  explicit Matcher(const Constraint::Compiled& compiled)
      : state(compiled.grammar), words(static_cast<std::size_t>((compiled.vocab_size + 63) / 64)),
        half_words((compiled.vocab_size + 31) / 32) {}
  xgrammar::GrammarMatcher state;
  std::vector<std::uint64_t> words;
  std::int64_t half_words;  // the library counts in 32 bits; on little-endian machines two of its words are one of ours
};

Constraint::Constraint(const ConstraintRule& rule, const std::vector<std::string>& token_bytes,
                       std::span<const TokenId> end_tokens, std::int64_t vocab_size) {
  MAGISTER_CHECK(!end_tokens.empty(), ExitCode::kConfig, "{}: the model names no end token (a complete text could not end); "
                 "name one with stop_tokens", rule.name);
  const auto known = static_cast<std::ptrdiff_t>(std::min<std::size_t>(token_bytes.size(), static_cast<std::size_t>(vocab_size)));
  const std::vector<std::string> tokens(token_bytes.begin(), token_bytes.begin() + known);
  std::vector<std::string> ignored;
  warnings_of_compilation = &ignored;
  std::string problem;
  try {
    const xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                                       std::vector<std::int32_t>(end_tokens.begin(), end_tokens.end()));
    // One thread: many ranks share a machine, and 49,152 tokens take milliseconds.
    xgrammar::GrammarCompiler compiler(info, /*max_threads=*/1, /*cache_enabled=*/false);
    compiled_ = std::make_unique<const Compiled>(Compiled{compiler.CompileGrammar(grammar_of(rule)), vocab_size});
  } catch (const std::exception& error) {
    problem = one_line(error.what());
  }
  warnings_of_compilation = nullptr;
  MAGISTER_CHECK(problem.empty(), ExitCode::kConfig, "{}: {} (no text could be checked against it); mend it", rule.name, problem);
  MAGISTER_CHECK(ignored.empty(), ExitCode::kConfig, "{}: {} (texts that do not match would come out); write it without that",
                 rule.name, one_line(ignored.front()));
  MAGISTER_CHECK(!ConstraintState(*this).allowed().empty(), ExitCode::kConfig, "{}: no token may begin a text (nothing matches "
                 "it); mend it", rule.name);
}

Constraint::~Constraint() = default;

ConstraintState::ConstraintState(const Constraint& constraint) : matcher_(std::make_unique<Matcher>(*constraint.compiled_)) {}
ConstraintState::ConstraintState(ConstraintState&&) noexcept = default;
ConstraintState::~ConstraintState() = default;

std::span<const std::uint64_t> ConstraintState::allowed() {
  DLTensor mask{};
  mask.data = matcher_->words.data();
  mask.device = {kDLCPU, 0};
  mask.ndim = 1;
  mask.dtype = xgrammar::GetBitmaskDLType();
  mask.shape = &matcher_->half_words;
  matcher_->state.FillNextTokenBitmask(&mask);
  const bool any = std::any_of(matcher_->words.begin(), matcher_->words.end(), [](std::uint64_t word) { return word != 0; });
  return any ? std::span<const std::uint64_t>(matcher_->words) : std::span<const std::uint64_t>();
}

bool ConstraintState::accept(TokenId token) { return matcher_->state.AcceptToken(token); }
bool ConstraintState::finished() const { return matcher_->state.IsTerminated(); }

}  // namespace magister
