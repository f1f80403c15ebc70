// VerdictReader: a judge's prompt on its way to a verdict, request by request of a generator: the reply (`method: decode`), the row of the verdict,
// the row after a "1" that may be a 10, and both once more behind a blank that is a token of its own. What task `judge` and a judge as a reward do
// alike.
#pragma once

#include <cstdint>
#include <vector>

#include "magister/core/types.h"
#include "magister/engine/generator.h"
#include "magister/tasks/judge/rules.h"
#include "magister/tasks/judge/scoring.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct JudgedPrompt {
  enum class Stage { kReply, kVerdict, kTen, kDone };  // prefill starts at kVerdict
  Stage stage = Stage::kVerdict;
  std::vector<TokenId> context;  // what the next request begins with
  std::vector<TokenId> reply;
  std::vector<double> logprobs;  // of the classes, by all ways to them that have been looked at
  std::vector<double> way;       // of the classes where the context ends now
  double blank_logprob = 0;      // of a blank where the verdict may stand
  bool behind_blank = false;     // that is where the context ends
  bool truncated = false;
  Verdict verdict;

  bool done() const { return stage == Stage::kDone; }
};

// What decides how a verdict is read, of a judge.
struct VerdictSource {
  const JudgeRules& rules;
  const std::vector<VerdictClass>& classes;
  const VerdictTokens& tokens;  // of the classes
  const Tokenizer& tokenizer;
  const std::vector<TokenId>& ends;  // tokens that end a reply, ascending
};

class VerdictReader {
 public:
  // What the source refers to is kept by reference.
  explicit VerdictReader(const VerdictSource& source);

  JudgedPrompt begin(std::vector<TokenId> prompt) const;
  // What is asked next of a prompt that is not done; refers to this.
  GenerationRequest request(std::uint64_t record, std::uint64_t sample, const JudgedPrompt& prompt) const;
  // From the answer to the next stage; at the last one the verdict stands there.
  void take(JudgedPrompt& prompt, const Generation& answer) const;
  // Whether a reply ends with its last token: with the model's end token, or where its verdict is to be scored.
  bool ends(const std::vector<TokenId>& reply) const;

 private:
  bool ends_text(TokenId id) const;
  void go_on(JudgedPrompt& prompt, const Generation& answer) const;
  void end_way(JudgedPrompt& prompt) const;
  void take_reply(JudgedPrompt& prompt, const Generation& answer) const;
  void finish(JudgedPrompt& prompt) const;

  VerdictSource source_;
  std::vector<TokenId> verdict_ids_, zero_;  // what is wanted of a row; the blank comes last
};

}  // namespace magister
