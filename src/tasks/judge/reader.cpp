// A prompt's verdict is a row of logits: after the prompt itself, or after the reply that the judge wrote.
#include "magister/tasks/judge/reader.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log_sum_exp.h"

namespace magister {
namespace {

constexpr const char* kCue = "Verdict:";
// A blank that is less probable than this (nats; 1e-6) would not change a verdict's visible digits but would cost
// another row.
constexpr double kLeastBlank = -13.8;
using Stage = JudgedPrompt::Stage;

}  // namespace

VerdictReader::VerdictReader(const VerdictSource& source) : source_(source), verdict_ids_(source.tokens.all()) {
  if (source_.tokens.zero) zero_ = {*source_.tokens.zero};
  if (source_.tokens.blank) verdict_ids_.push_back(*source_.tokens.blank);
}

JudgedPrompt VerdictReader::begin(std::vector<TokenId> prompt) const {
  JudgedPrompt begun;
  begun.context = std::move(prompt);
  begun.stage = source_.rules.method == JudgeMethod::kDecode ? Stage::kReply : Stage::kVerdict;
  return begun;
}

GenerationRequest VerdictReader::request(std::uint64_t record, std::uint64_t sample, const JudgedPrompt& prompt) const {
  GenerationRequest request{record, sample, prompt.context};
  if (prompt.stage == Stage::kReply) {
    request.max_new_tokens = static_cast<std::int64_t>(source_.rules.max_new_tokens.tokens());
  } else {
    request.wanted = prompt.stage == Stage::kTen ? std::span(zero_) : std::span(verdict_ids_);
  }
  return request;
}

void VerdictReader::take(JudgedPrompt& prompt, const Generation& answer) const {
  go_on(prompt, answer);
  if (prompt.done()) finish(prompt);
}

bool VerdictReader::ends_text(TokenId id) const {
  return std::binary_search(source_.ends.begin(), source_.ends.end(), id);
}

bool VerdictReader::ends(const std::vector<TokenId>& reply) const {
  if (ends_text(reply.back())) return true;
  if (source_.rules.read != JudgeRead::kScore) return false;
  constexpr std::size_t kTail = 12;  // tokens with bytes; the cue has at most one per byte
  std::size_t begin = reply.size();
  for (std::size_t seen = 0; begin > 0 && seen < kTail; --begin)
    seen += source_.tokenizer.token_bytes(reply[begin - 1]).empty() ? 0 : 1;
  return source_.tokenizer.decode(std::span(reply).subspan(begin)).find(kCue) != std::string::npos;
}

void VerdictReader::go_on(JudgedPrompt& prompt, const Generation& answer) const {
  switch (prompt.stage) {
    case Stage::kReply:
      return take_reply(prompt, answer);
    case Stage::kVerdict: {
      prompt.way = class_logprobs(answer.wanted_logits, answer.logsumexp, source_.tokens);
      if (source_.tokens.blank && !prompt.ends_with_blank)
        prompt.blank_logprob = static_cast<double>(answer.wanted_logits.back()) - answer.logsumexp;
      if (!source_.tokens.zero) return end_way(prompt);
      const std::vector<TokenId>& ones = source_.tokens.first.front();  // the first of all requested tokens
      const auto begin = answer.wanted_logits.begin(), end = begin + static_cast<std::ptrdiff_t>(ones.size());
      prompt.context.push_back(ones[static_cast<std::size_t>(std::max_element(begin, end) - begin)]);
      prompt.stage = Stage::kTen;
      return;
    }
    case Stage::kTen:
      split_ten(prompt.way, static_cast<double>(answer.wanted_logits.front()) - answer.logsumexp);
      prompt.context.pop_back();
      return end_way(prompt);
    case Stage::kDone:
      return;
  }
}

// The probability of a verdict is the sum over all paths to it: directly, and after a blank.
void VerdictReader::end_way(JudgedPrompt& prompt) const {
  if (!prompt.ends_with_blank) {
    prompt.logprobs = prompt.way;
  } else {
    for (std::size_t c = 0; c < prompt.way.size(); ++c) {
      const double both[] = {prompt.logprobs[c], prompt.blank_logprob + prompt.way[c]};
      prompt.logprobs[c] = log_sum_exp<double>(both);
    }
  }
  if (prompt.ends_with_blank || !source_.tokens.blank || prompt.blank_logprob < kLeastBlank) {
    prompt.stage = Stage::kDone;
    return;
  }
  prompt.context.push_back(*source_.tokens.blank);
  prompt.ends_with_blank = true;
  prompt.stage = Stage::kVerdict;
}

void VerdictReader::take_reply(JudgedPrompt& prompt, const Generation& answer) const {
  prompt.reply = answer.tokens;
  std::vector<TokenId> words = answer.tokens;
  if (!words.empty() && ends_text(words.back())) words.pop_back();
  const std::string text = source_.tokenizer.decode(words);
  prompt.truncated = answer.finish_reason == FinishReason::kLength;
  if (source_.rules.read != JudgeRead::kScore) {
    const bool word = source_.rules.read == JudgeRead::kWord;
    prompt.verdict = verdict_from_text(word ? first_word(text, source_.classes) : any_substring(text, source_.classes),
                                       source_.classes.size());
    prompt.stage = Stage::kDone;
    return;
  }
  prompt.context.insert(prompt.context.end(), words.begin(), words.end());
  if (text.find(kCue) == std::string::npos) {
    const std::vector<TokenId> cue = continuation_ids(source_.tokenizer, std::string("\n") + kCue).front();
    prompt.context.insert(prompt.context.end(), cue.begin(), cue.end());
  } else {
    prompt.truncated = false;
  }
  prompt.stage = Stage::kVerdict;
}

void VerdictReader::finish(JudgedPrompt& prompt) const {
  if (!prompt.logprobs.empty()) prompt.verdict = verdict_from(prompt.logprobs, source_.rules.low_mass);
  // A verdict in a reply counts however the reply ends. One that was forced upon a cut reply is marked as truncated.
  const bool forced = source_.rules.read == JudgeRead::kScore || prompt.verdict.verdict < 0;
  if (prompt.truncated && forced) prompt.verdict.parse = ParseClass::kTruncated;
  prompt.context.clear();
}

}  // namespace magister
