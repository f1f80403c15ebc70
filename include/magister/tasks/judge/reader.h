// VerdictReader: leads a judge's prompt to its verdict through a generator's requests: the reply (`method: decode`),
// the row of the verdict, the row after a "1" that may be a 10, and the last two again after a blank that is a token of
// its own. Task `judge` and a judge as a reward share it.
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
  std::vector<TokenId> context;  // the prompt of the next request
  std::vector<TokenId> reply;
  std::vector<double> logprobs;  // of the classes, summed over all paths to them so far
  std::vector<double> way;       // of the classes, on the current path
  double blank_logprob = 0;      // of a blank at the verdict's position
  bool ends_with_blank = false;  // the context ends with that blank
  bool truncated = false;
  Verdict verdict;

  bool done() const { return stage == Stage::kDone; }
};

// All that decides how a judge's verdict is read.
struct VerdictSource {
  const JudgeRules& rules;
  const std::vector<VerdictClass>& classes;
  const VerdictTokens& tokens;  // of the classes
  const Tokenizer& tokenizer;
  const std::vector<TokenId>& ends;  // tokens that end a reply, ascending
};

class VerdictReader {
 public:
  // Keeps references to the members of source.
  explicit VerdictReader(const VerdictSource& source);

  JudgedPrompt begin(std::vector<TokenId> prompt) const;
  // The next request of a prompt that is not done; it refers to this object.
  GenerationRequest request(std::uint64_t record, std::uint64_t sample, const JudgedPrompt& prompt) const;
  // Takes the answer and moves the prompt to its next stage; when the prompt is done, it has its verdict.
  void take(JudgedPrompt& prompt, const Generation& answer) const;
  // True if the reply is complete: its last token is an end token of the model, or its verdict is to be scored there.
  bool ends(const std::vector<TokenId>& reply) const;

 private:
  bool ends_text(TokenId id) const;
  void go_on(JudgedPrompt& prompt, const Generation& answer) const;
  void end_way(JudgedPrompt& prompt) const;
  void take_reply(JudgedPrompt& prompt, const Generation& answer) const;
  void finish(JudgedPrompt& prompt) const;

  VerdictSource source_;
  std::vector<TokenId> verdict_ids_, zero_;  // tokens whose logits a request asks for; the blank comes last
};

}  // namespace magister
