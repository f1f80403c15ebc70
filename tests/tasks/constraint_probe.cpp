// Texts under a constraint for the Python test: one JSON request per line on standard input, one answer per line.
// Tokens are the 256 bytes and some longer ones.
// {"kind": "regex" | "json_schema", "text": rule, "samples": n, "seed": s, "accepts": [texts], "counts": bool} ->
// {"samples": [texts that ended], "accepts": [bools]}, or {"refused": message}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "magister/core/error.h"
#include "magister/engine/constraint.h"
#include "tasks/generate/plain_schema.h"
#include "tasks/generate/schema_keywords.h"
#include "tasks/generate/text_readings.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;
constexpr TokenId kEnd = 256;
constexpr std::int64_t kVocab = 320;
constexpr int kMostTokens = 400;

std::vector<std::string> vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"", "ab", "bc", "aa", "-b", "\": ", ", ", "{\"", "\", \"", "\\u", "\\ud8", "\\n", "\\\"",
                               "\xC3\xA9", "\xC2\xA0", "00", "12"});
  return tokens;
}

// Draws evenly, but ends a text that may end every third time.
std::string sample(const Constraint& constraint, const std::vector<std::string>& tokens, std::mt19937& draw,
                   bool& ended) {
  ConstraintState state(constraint);
  std::string text;
  for (int step = 0; step < kMostTokens && !state.finished(); ++step) {
    const auto mask = state.allowed();
    std::vector<TokenId> allowed;
    bool may_end = false;
    for (TokenId id = 0; id < kVocab; ++id) {
      if (mask.empty() || (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) == 0) continue;
      if (id == kEnd)
        may_end = true;
      else
        allowed.push_back(id);
    }
    if (allowed.empty() && !may_end) throw std::runtime_error("nothing may follow \"" + text + "\"");
    const TokenId next = may_end && (allowed.empty() || draw() % 3 == 0) ? kEnd : allowed[draw() % allowed.size()];
    if (!state.accept(next)) throw std::runtime_error("an allowed token was not accepted after \"" + text + "\"");
    if (next != kEnd) text += tokens[static_cast<std::size_t>(next)];
  }
  ended = state.finished();
  return text;
}

bool accepts(const Constraint& constraint, const std::string& text) {
  ConstraintState state(constraint);
  for (const char c : text) {
    if (!state.accept(static_cast<unsigned char>(c))) return false;
  }
  return state.accept(kEnd) && state.finished();
}

Json answer(const Json& request) {
  ConstraintRule rule{request["kind"] == "regex" ? ConstraintRule::Kind::kRegex : ConstraintRule::Kind::kJsonSchema,
                      request["text"].get<std::string>(),
                      {},
                      "rule"};
  const std::vector<TokenId> ends{kEnd};
  const std::vector<std::string> tokens = vocabulary();
  Json found = {{"samples", Json::array()}, {"accepts", Json::array()}};
  try {
    if (rule.kind == ConstraintRule::Kind::kJsonSchema) {
      check_schema_keywords(rule.text, rule.name);
      rule.counts_texts = request.value("counts", has_one_reading(rule.text));
      rule.text = plain_schema(rule.text, rule.name);
    }
    const Constraint constraint(rule, tokens, ends, kVocab);
    std::mt19937 draw(request.value("seed", 1u));
    for (int i = 0; i < request.value("samples", 0); ++i) {
      bool ended = false;
      const std::string text = sample(constraint, tokens, draw, ended);
      if (ended) found["samples"].push_back(text);
    }
    for (const Json& text : request.value("accepts", Json::array()))
      found["accepts"].push_back(accepts(constraint, text.get<std::string>()));
  } catch (const Error& error) {
    return {{"refused", error.what()}};
  }
  return found;
}

}  // namespace
}  // namespace magister

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << magister::answer(nlohmann::ordered_json::parse(line)).dump() << std::endl;
}
