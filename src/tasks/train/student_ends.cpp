// See student_ends.h.
// Source: TRL 1.16, sft_trainer (eos_token: the turn's end before the model's own) and grpo_trainer.
#include "tasks/train/student_ends.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/runtime/end_tokens.h"

namespace magister {

std::vector<TokenId> student_ends(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt) {
  if (config.of_head()) return {};
  std::vector<TokenId> ends = checkpoint.end_tokens();
  if (learnt.written) return *learnt.written == ends ? std::vector<TokenId>() : *learnt.written;
  const auto turn = learnt.chats ? unended_turn(checkpoint, ends) : std::nullopt;
  const TokenId end = turn ? turn->token : learnt.appended;
  if (end < 0 || std::find(ends.begin(), ends.end(), end) != ends.end()) return {};
  ends.insert(ends.begin(), end);
  return ends;
}

namespace {

void warn_of_turns(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt,
                   const std::optional<TurnEnd>& turn) {
  if (learnt.chats_of_another) {
    log_warning(
        "{}: the teacher's rows are of chats, and {} has {} (the student is asked in another form than it learnt, and "
        "may not end where its answers do); put the teacher's chat template into the student's folder",
        config.name, printable(checkpoint.path()),
        checkpoint.chat_source() == nullptr ? "no chat template" : "another chat template than they were written by");
  }
  if (turn && turn->text.empty()) {
    log_warning(
        "{}: {} writes no token after an answer (the student does not learn where a turn ends); use a template that "
        "ends a turn with a token",
        config.name, printable(turn->template_name));
  } else if (turn && turn->token < 0) {
    log_warning(
        "{}: {} ends a turn with \"{}\", which is no token of the vocabulary, and what ends a text is {} (the student "
        "continues after the end of its turn); generate with that text as a stop text, or use a tokenizer in which it "
        "is one token",
        config.name, printable(turn->template_name), printable(turn->text, 40),
        describe_end_tokens(checkpoint, checkpoint.end_tokens()));
  }
}

}  // namespace

void say_student_ends(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt) {
  if (config.of_head() || learnt.written) return;
  const std::vector<TokenId>& own = checkpoint.end_tokens();
  const auto turn = learnt.chats ? unended_turn(checkpoint, own) : std::nullopt;
  warn_of_turns(checkpoint, config, learnt, turn);
  const std::vector<TokenId> ends = student_ends(checkpoint, config, learnt);
  if (ends.empty()) return;
  const std::string end =
      fmt::format("{}: {} token {}, and the model's texts end with {}", config.name,
                  turn ? printable(turn->template_name) + " ends a turn with" : "a text is learnt to end with",
                  describe_end_tokens(checkpoint, std::span(ends).first(1)), describe_end_tokens(checkpoint, own));
  if (config.trainer.lora) {
    log_warning(
        "{} (PEFT and transformers read the end tokens of the model alone, and would write on); generation_config.json "
        "next to the adapter names both, which is read here: elsewhere give them to generate() as eos_token_id",
        end);
  } else {
    log_info("{}: generation_config.json of the student names both", end);
  }
}

}  // namespace magister
