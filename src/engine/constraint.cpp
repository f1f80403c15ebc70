// Constraints by xgrammar. The library is built to pass its warnings to this file (XGRAMMAR_LOG_CUSTOMIZE). A part of a
// schema that it would ignore is an error here: otherwise texts that do not match the schema would be written without
// notice.
#include "magister/engine/constraint.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "engine/counted_texts.h"
#include "engine/json_escapes.h"
#include "engine/number_range.h"
#include "magister/core/error.h"
#include "magister/engine/regex_syntax.h"

namespace {

struct Compilation {
  std::vector<std::string> warnings;
  bool counts_texts = false;
  std::vector<magister::TextBounds> bounds;  // of counted strings, each pair once
};
// Set while this thread compiles. The library compiles on the calling thread (max_threads = 1).
thread_local Compilation* compilation = nullptr;

}  // namespace

namespace xgrammar {

// The library calls all of these functions; scripts/setup.sh patches it to call the last two. Level 2 is a warning;
// lower levels are for its developers.
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level >= 2 && compilation != nullptr) compilation->warnings.push_back(message);
}
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}
std::string NumberRangeGrammar(std::optional<double> least, std::optional<double> most, bool excludes_least,
                               bool excludes_most) {
  return magister::number_range_grammar(least, most, excludes_least, excludes_most);
}
std::string BoundedTextGrammar(int least, int most) {
  const magister::TextBounds bounds{least, most};
  const bool counts = compilation != nullptr && compilation->counts_texts;
  if (counts && std::find(compilation->bounds.begin(), compilation->bounds.end(), bounds) == compilation->bounds.end())
    compilation->bounds.push_back(bounds);
  return magister::counted_text_grammar(bounds, counts);
}

}  // namespace xgrammar

namespace magister {
namespace {

using Kind = ConstraintRule::Kind;

// Writes "root ::= "a" | "b"". Control characters are escaped with a fixed number of digits: after \x the library would
// also read the hexadecimal digits of the text that follows. All other characters stay as UTF-8.
std::string grammar_of_choices(const std::vector<std::string>& choices) {
  std::string grammar = "root ::= ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    grammar += i == 0 ? "\"" : " | \"";
    for (const char c : choices[i]) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        grammar += {'\\', c};
      } else if (byte < 0x20 || byte == 0x7F) {
        grammar += fmt::format("\\u{:04x}", byte);
      } else {
        grammar += c;
      }
    }
    grammar += '"';
  }
  return grammar;
}

xgrammar::Grammar grammar_of(const ConstraintRule& rule) {
  switch (rule.kind) {
    case Kind::kJsonSchema:
      return xgrammar::Grammar::FromJSONSchema(rule.text, /*any_whitespace=*/false);
    case Kind::kRegex:
      return xgrammar::Grammar::FromRegex(plain_regex(rule.text, RegexPlace::kText));
    case Kind::kChoice:
      return xgrammar::Grammar::FromEBNF(grammar_of_choices(rule.choices));
    case Kind::kGrammar:
      break;
  }
  return xgrammar::Grammar::FromEBNF(rule.text);
}

// First bytes of UTF-8 after which not every continuation byte may follow (surrogates, overlong forms, beyond U+10FFFF;
// RFC 3629). The library's character classes allow some invalid sequences.
struct NarrowLead {
  unsigned char lead, least, most;
};
constexpr std::array<NarrowLead, 4> kNarrowLeads = {
    {{0xE0, 0xA0, 0xBF}, {0xED, 0x80, 0x9F}, {0xF0, 0x90, 0xBF}, {0xF4, 0x80, 0x8F}}};
constexpr int kNoLead = -1;

int narrow_lead(char c) {
  for (std::size_t i = 0; i < kNarrowLeads.size(); ++i) {
    if (static_cast<unsigned char>(c) == kNarrowLeads[i].lead) return static_cast<int>(i);
  }
  return kNoLead;
}

bool may_follow(int lead, char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (lead == kNoLead) return true;
  const NarrowLead& narrow = kNarrowLeads[static_cast<std::size_t>(lead)];
  return byte >= narrow.least && byte <= narrow.most;
}

// Returns whether no text can contain the bytes: they are not UTF-8, or contain NUL, with which text columns are
// padded.
bool is_in_no_text(const std::string& bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte == 0 || byte == 0xC0 || byte == 0xC1 || byte > 0xF4) return true;
    if (i > 0 && !may_follow(narrow_lead(bytes[i - 1]), bytes[i])) return true;
  }
  return false;
}

// The library's messages may contain whole schemas over many lines.
std::string one_line(std::string words) {
  while (!words.empty() && (words.back() == '\n' || words.back() == '.')) words.pop_back();
  return printable(words, 400);
}

}  // namespace

struct Constraint::Compiled {
  xgrammar::CompiledGrammar grammar;
  std::int64_t vocab_size;
  std::vector<std::int16_t> lead{};  // per token: the index of the narrow lead byte that it ends with, or kNoLead
  std::array<std::vector<std::uint64_t>, kNarrowLeads.size()>
      barred{};  // for each lead, the tokens that may not follow it, as bits
  // JSON: the tokens' bytes, and the tokens that may not follow in each state of an escape; empty for other kinds.
  std::vector<std::string> tokens{};
  std::array<std::vector<std::uint64_t>, kNumEscapes> barred_escapes{};
  // Set if string lengths are counted: all bounds of the schema.
  std::vector<TextBounds> bounds{};
  std::optional<CountedTokens> counted{};

  static bool holds(const std::vector<std::uint64_t>& bits, std::size_t i) {
    return (bits[i / 64] >> (i % 64) & 1) != 0;
  }

  void bar_escapes(const std::vector<std::string>& all_tokens) {
    tokens = all_tokens;
    for (std::size_t state = 0; state < kNumEscapes; ++state) {
      auto& bits = barred_escapes[state];
      bits.assign(static_cast<std::size_t>((vocab_size + 63) / 64), 0);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (after(static_cast<Escape>(state), tokens[i]) == kBarred) bits[i / 64] |= std::uint64_t{1} << (i % 64);
      }
    }
  }
};

struct ConstraintState::Matcher {
  explicit Matcher(const Constraint::Compiled& made)
      : compiled(made),
        state(compiled.grammar),
        ends(state.GetStopTokenIds()),
        words(static_cast<std::size_t>((compiled.vocab_size + 63) / 64)),
        half_words((compiled.vocab_size + 31) / 32) {}
  const Constraint::Compiled& compiled;
  xgrammar::GrammarMatcher state;
  std::vector<int> ends;
  std::vector<std::uint64_t> words;
  std::int64_t half_words;  // the library has 32-bit words; on little-endian machines two of them are one of ours
  int lead = kNoLead;       // index of the narrow lead byte with which the text ends
  TextPlace place;          // position in the JSON text, if strings are counted; otherwise only its escape is used

  // Tokens that may not follow, whatever the grammar allows.
  std::vector<const std::vector<std::uint64_t>*> barred() const {
    std::vector<const std::vector<std::uint64_t>*> all;
    if (lead != kNoLead) all.push_back(&compiled.barred[static_cast<std::size_t>(lead)]);
    if (!compiled.tokens.empty()) all.push_back(&compiled.barred_escapes[place.escape]);
    return all;
  }

  // Bounds of the string that the grammar has just begun.
  TextBounds bounds_here() {
    for (const TextBounds& bounds : compiled.bounds) {
      if (!state.AcceptString(bounds_mark(bounds))) continue;
      state.Rollback(1);
      return bounds;
    }
    return {};
  }
  TextBounds bounds_after(std::string_view bytes) {
    if (!state.AcceptString(std::string(bytes))) return {};
    const TextBounds bounds = bounds_here();
    state.Rollback(1);
    return bounds;
  }

  // Accepts a token in pieces that end where a string begins, because only there the grammar can be asked for the
  // bounds.
  bool accept_counted(const std::string& bytes) {
    int pieces = 0;
    std::size_t taken = 0;
    bool fits = true;
    const auto take = [&](std::size_t end) {
      if (!fits || end == taken) return;
      fits = state.AcceptString(bytes.substr(taken, end - taken));
      pieces += fits ? 1 : 0;
      taken = end;
    };
    TextPlace next = place;
    const bool counts = go_on(next, bytes, [&](std::size_t end) {
      take(end);
      return fits ? bounds_here() : TextBounds{};
    });
    take(bytes.size());
    if (counts && fits) {
      place = next;
      return true;
    }
    if (pieces > 0) state.Rollback(pieces);
    return false;
  }
};

Constraint::Constraint(const ConstraintRule& rule, const std::vector<std::string>& token_bytes,
                       std::span<const TokenId> end_tokens, std::int64_t vocab_size) {
  MAGISTER_CHECK(!end_tokens.empty(), ExitCode::kConfig,
                 "{}: the model names no end token (a complete text could not end); "
                 "name one with stop_tokens",
                 rule.name);
  const auto known =
      static_cast<std::ptrdiff_t>(std::min<std::size_t>(token_bytes.size(), static_cast<std::size_t>(vocab_size)));
  std::vector<std::string> tokens(token_bytes.begin(), token_bytes.begin() + known);
  for (const TokenId end : end_tokens) {
    MAGISTER_CHECK(end >= 0 && end < vocab_size, ExitCode::kConfig,
                   "{}: the end token {} is outside the vocabulary of {} (no "
                   "text could end); name another with stop_tokens",
                   rule.name, end, vocab_size);
    // The library takes only tokens of its vocabulary as end tokens, and padding is not part of it.
    tokens.resize(std::max(tokens.size(), static_cast<std::size_t>(end) + 1));
  }
  Compiled compiled{.grammar = xgrammar::CompiledGrammar(xgrammar::NullObj()), .vocab_size = vocab_size};
  compiled.lead.assign(static_cast<std::size_t>(vocab_size), kNoLead);
  for (auto& bits : compiled.barred) bits.assign(static_cast<std::size_t>((vocab_size + 63) / 64), 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_in_no_text(tokens[i]) ||
        (rule.kind == Kind::kJsonSchema && tokens[i].find(kBoundsMark) != std::string::npos))
      tokens[i].clear();
    if (tokens[i].empty()) continue;
    compiled.lead[i] = static_cast<std::int16_t>(narrow_lead(tokens[i].back()));
    for (std::size_t lead = 0; lead < kNarrowLeads.size(); ++lead) {
      if (!may_follow(static_cast<int>(lead), tokens[i].front()))
        compiled.barred[lead][i / 64] |= std::uint64_t{1} << (i % 64);
    }
  }
  if (rule.kind == Kind::kJsonSchema) compiled.bar_escapes(tokens);
  Compilation made{{}, rule.counts_texts, {}};
  compilation = &made;
  std::string problem;
  try {
    const xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                                       std::vector<std::int32_t>(end_tokens.begin(), end_tokens.end()));
    // One thread, because many ranks share a machine, and 49,152 tokens take milliseconds.
    xgrammar::GrammarCompiler compiler(info, /*max_threads=*/1, /*cache_enabled=*/false);
    compiled.grammar = compiler.CompileGrammar(grammar_of(rule));
  } catch (const std::exception& error) {
    problem = one_line(error.what());
  }
  compilation = nullptr;
  MAGISTER_CHECK(problem.empty(), ExitCode::kConfig, "{}: {} (no text could be checked against it); fix it", rule.name,
                 problem);
  MAGISTER_CHECK(made.warnings.empty(), ExitCode::kConfig,
                 "{}: {} (texts that do not match would come out); write it without that", rule.name,
                 one_line(made.warnings.front()));
  compiled.bounds = std::move(made.bounds);
  auto whole = std::make_unique<Compiled>(std::move(compiled));
  if (!whole->bounds.empty()) whole->counted.emplace(whole->tokens);
  compiled_ = std::move(whole);
  MAGISTER_CHECK(!ConstraintState(*this).allowed().empty(), ExitCode::kConfig,
                 "{}: no token may begin a text (nothing matches "
                 "it); fix it",
                 rule.name);
}

Constraint::~Constraint() = default;

ConstraintState::ConstraintState(const Constraint& constraint)
    : matcher_(std::make_unique<Matcher>(*constraint.compiled_)) {}
ConstraintState::ConstraintState(ConstraintState&&) noexcept = default;
ConstraintState::~ConstraintState() = default;

std::span<const std::uint64_t> ConstraintState::allowed() {
  DLTensor mask{.data = matcher_->words.data(),
                .device = {kDLCPU, 0},
                .ndim = 1,
                .dtype = xgrammar::GetBitmaskDLType(),
                .shape = &matcher_->half_words,
                .strides = nullptr,
                .byte_offset = 0};
  matcher_->state.FillNextTokenBitmask(&mask);
  for (const auto* barred : matcher_->barred()) {
    for (std::size_t i = 0; i < matcher_->words.size(); ++i) matcher_->words[i] &= ~(*barred)[i];
  }
  if (matcher_->compiled.counted)
    matcher_->compiled.counted->bar(matcher_->words, matcher_->place,
                                    [this](std::string_view bytes) { return matcher_->bounds_after(bytes); });
  const bool any =
      std::any_of(matcher_->words.begin(), matcher_->words.end(), [](std::uint64_t word) { return word != 0; });
  return any ? std::span<const std::uint64_t>(matcher_->words) : std::span<const std::uint64_t>();
}

bool ConstraintState::accept(TokenId token) {
  const Constraint::Compiled& compiled = matcher_->compiled;
  if (token < 0 || token >= compiled.vocab_size) return false;
  const auto i = static_cast<std::size_t>(token);
  for (const auto* barred : matcher_->barred()) {
    if (Constraint::Compiled::holds(*barred, i)) return false;
  }
  const bool counts = compiled.counted && i < compiled.tokens.size() && !compiled.tokens[i].empty() &&
                      std::find(matcher_->ends.begin(), matcher_->ends.end(), token) == matcher_->ends.end();
  if (!(counts ? matcher_->accept_counted(compiled.tokens[i]) : matcher_->state.AcceptToken(token))) return false;
  matcher_->lead = compiled.lead[i];
  if (!counts && i < compiled.tokens.size()) matcher_->place.escape = after(matcher_->place.escape, compiled.tokens[i]);
  return true;
}

bool ConstraintState::finished() const { return matcher_->state.IsTerminated(); }

}  // namespace magister
