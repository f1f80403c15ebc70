// What ends the student's texts: chats teach it to end a turn as their template does, and who generates with it goes by generation_config.json.
// Source: TRL 1.16, sft_trainer (eos_token: the turn's end before the model's own) and grpo_trainer.
#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/io/results/reader.h"
#include "magister/runtime/end_tokens.h"
#include "tasks/train/job.h"

namespace magister {

bool TrainJob::has_chats() const {
  return (texts_ && texts_->has_chats()) || (pairs_ && pairs_->has_chats()) || (prompts_ && prompts_->has_chats()) ||
         teachers_chats_ == TeachersChats::kOfOwnTemplate;
}

// Reads what decides student_ends() before the identity is made.
void TrainJob::open_teachers_chats(const std::string& results) {
  const ResultsReader file(results);
  if (file.attribute("chat_template_sha256") == nullptr) return;
  const std::string taught = file.text("chat_template_sha256");
  if (taught == "none") return;
  const ChatSource* const own = checkpoint_.chat_source();
  checkpoint_.end_tokens();
  teachers_chats_ =
      own != nullptr && own->sha256() == taught ? TeachersChats::kOfOwnTemplate : TeachersChats::kOfAnother;
}

std::vector<TokenId> TrainJob::student_ends() const {
  if (config_.of_head()) return {};
  if (prompts_)
    return prompts_->end_tokens() == checkpoint_.end_tokens() ? std::vector<TokenId>() : prompts_->end_tokens();
  std::vector<TokenId> ends = checkpoint_.end_tokens();
  const auto turn = has_chats() ? unended_turn(checkpoint_, ends) : std::nullopt;
  const TokenId learnt = turn ? turn->token : texts_ ? texts_->appended() : pairs_ ? pairs_->appended() : -1;
  if (learnt < 0 || std::find(ends.begin(), ends.end(), learnt) != ends.end()) return {};
  ends.insert(ends.begin(), learnt);
  return ends;
}

void TrainJob::say_ends() const {
  if (config_.of_head() || prompts_) return;
  if (teachers_chats_ == TeachersChats::kOfAnother) {
    log_warning(
        "{}: the teacher's rows are of chats, and {} has {} (the student is asked in another form than it learnt, and "
        "may not end where its answers do); put the teacher's chat template into the student's folder",
        config_.name, printable(checkpoint_.path()),
        checkpoint_.chat_source() == nullptr ? "no chat template" : "another chat template than they were written by");
  }
  const std::vector<TokenId>& own = checkpoint_.end_tokens();
  const auto turn = has_chats() ? unended_turn(checkpoint_, own) : std::nullopt;
  if (turn && turn->text.empty()) {
    log_warning(
        "{}: {} writes no token behind an answer (the student does not learn where a turn ends); use a template that "
        "ends a turn with a token",
        config_.name, printable(turn->template_name));
  } else if (turn && turn->token < 0) {
    log_warning(
        "{}: {} ends a turn with \"{}\", which is no token of the vocabulary, and what ends a text is {} (the student "
        "writes on behind its turn's end); generate with that text as a stop text, or use a tokenizer in which it is "
        "one token",
        config_.name, printable(turn->template_name), printable(turn->text, 40), describe_end_tokens(checkpoint_, own));
  }
  const std::vector<TokenId> ends = student_ends();
  if (ends.empty()) return;
  const std::string learnt =
      fmt::format("{}: {} token {}, and the model's texts end with {}", config_.name,
                  turn ? printable(turn->template_name) + " ends a turn with" : "a text is learnt to end with",
                  describe_end_tokens(checkpoint_, std::span(ends).first(1)), describe_end_tokens(checkpoint_, own));
  if (lora_) {
    log_warning(
        "{} (PEFT and transformers read the end tokens of the model alone, and would write on); generation_config.json "
        "beside the adapter names both, which is read here: elsewhere give them to generate() as eos_token_id",
        learnt);
  } else {
    log_info("{}: generation_config.json of the student names both", learnt);
  }
}

}  // namespace magister
