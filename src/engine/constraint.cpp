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
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level >= 2 && warnings_of_compilation != nullptr) warnings_of_compilation->push_back(message);
}
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

bool is_surrogate_tail(char c) { return (static_cast<unsigned char>(c) & 0xE0) == 0xA0; }
constexpr char kSurrogateLead = '\xED';

// Bytes ED A0..BF would be a surrogate, which UTF-8 does not have; the library's character classes contain them.
bool holds_surrogate(const std::string& bytes) {
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] == kSurrogateLead && is_surrogate_tail(bytes[i + 1])) return true;
  }
  return false;
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
  std::vector<std::uint64_t> leads, tails;  // tokens that end with a surrogate's first byte; that begin with its second
  static bool has(const std::vector<std::uint64_t>& bits, TokenId id) {
    const auto i = static_cast<std::size_t>(id);
    return (bits[i / 64] >> (i % 64) & 1) != 0;
  }
};

struct ConstraintState::Matcher {
  explicit Matcher(const Constraint::Compiled& made)
      : compiled(made), state(compiled.grammar), words(static_cast<std::size_t>((compiled.vocab_size + 63) / 64)),
        half_words((compiled.vocab_size + 31) / 32) {}
  const Constraint::Compiled& compiled;
  xgrammar::GrammarMatcher state;
  std::vector<std::uint64_t> words;
  std::int64_t half_words;  // the library counts in 32 bits; on little-endian machines two of its words are one of ours
  bool after_lead = false;
};

Constraint::Constraint(const ConstraintRule& rule, const std::vector<std::string>& token_bytes,
                       std::span<const TokenId> end_tokens, std::int64_t vocab_size) {
  MAGISTER_CHECK(!end_tokens.empty(), ExitCode::kConfig, "{}: the model names no end token (a complete text could not end); "
                 "name one with stop_tokens", rule.name);
  const auto known = static_cast<std::ptrdiff_t>(std::min<std::size_t>(token_bytes.size(), static_cast<std::size_t>(vocab_size)));
  std::vector<std::string> tokens(token_bytes.begin(), token_bytes.begin() + known);
  for (const TokenId end : end_tokens) {
    MAGISTER_CHECK(end >= 0 && end < vocab_size, ExitCode::kConfig, "{}: the end token {} stands outside the vocabulary of {} (no "
                   "text could end); name another with stop_tokens", rule.name, end, vocab_size);
    // The library takes only tokens that it was given for end tokens, and padding is none.
    tokens.resize(std::max(tokens.size(), static_cast<std::size_t>(end) + 1));
  }
  const auto num_words = static_cast<std::size_t>((vocab_size + 63) / 64);
  std::vector<std::uint64_t> leads(num_words), tails(num_words);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (holds_surrogate(tokens[i])) tokens[i].clear();
    if (tokens[i].empty()) continue;
    if (tokens[i].back() == kSurrogateLead) leads[i / 64] |= std::uint64_t{1} << (i % 64);
    if (is_surrogate_tail(tokens[i].front())) tails[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  std::vector<std::string> ignored;
  warnings_of_compilation = &ignored;
  std::string problem;
  try {
    const xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                                       std::vector<std::int32_t>(end_tokens.begin(), end_tokens.end()));
    // One thread: many ranks share a machine, and 49,152 tokens take milliseconds.
    xgrammar::GrammarCompiler compiler(info, /*max_threads=*/1, /*cache_enabled=*/false);
    compiled_ = std::make_unique<const Compiled>(Compiled{compiler.CompileGrammar(grammar_of(rule)), vocab_size, leads, tails});
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
  if (matcher_->after_lead) {
    for (std::size_t i = 0; i < matcher_->words.size(); ++i) matcher_->words[i] &= ~matcher_->compiled.tails[i];
  }
  const bool any = std::any_of(matcher_->words.begin(), matcher_->words.end(), [](std::uint64_t word) { return word != 0; });
  return any ? std::span<const std::uint64_t>(matcher_->words) : std::span<const std::uint64_t>();
}

bool ConstraintState::accept(TokenId token) {
  const Constraint::Compiled& compiled = matcher_->compiled;
  if (token < 0 || token >= compiled.vocab_size) return false;
  if (matcher_->after_lead && Constraint::Compiled::has(compiled.tails, token)) return false;
  if (!matcher_->state.AcceptToken(token)) return false;
  matcher_->after_lead = Constraint::Compiled::has(compiled.leads, token);
  return true;
}

bool ConstraintState::finished() const { return matcher_->state.IsTerminated(); }

}  // namespace magister
