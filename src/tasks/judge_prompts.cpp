// Prompts by mode. Wording: this project's own; each ends so that the next token is the verdict.
#include "tasks/judge_prompts.h"

#include <map>

#include "magister/core/error.h"
#include "magister/core/sha256.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

struct Prompt {
  const char* system;
  const char* user;
};

const Prompt& default_prompt(JudgeMode mode) {
  static const std::map<JudgeMode, Prompt> prompts = {
      {JudgeMode::kReference,
       {"You decide whether a proposed answer means the same as a reference answer. Wording may differ; facts may not. An answer "
        "that is incomplete, evasive or nonsense does not mean the same. You reply with one word: yes or no.",
        "Question: {{ question }}\n{% if references | length == 1 %}Reference answer: {{ references[0] }}\n{% else %}Reference "
        "answers (any of them counts):\n{% for reference in references %}- {{ reference }}\n{% endfor %}{% endif %}Proposed answer: "
        "{{ answer }}\n\nDoes the proposed answer mean the same as {% if references | length == 1 %}the reference answer"
        "{% else %}any of the reference answers{% endif %}? Reply yes or no."}},
      {JudgeMode::kSimpleQa,
       {"You grade an answer against a reference answer. A: correct, it contains the reference's facts and contradicts none. "
        "B: incorrect, it contradicts them. C: not attempted, it neither contains nor contradicts them. You reply with one letter.",
        "Question: {{ question }}\nReference answer: {{ references | join(' / ') }}\nAnswer: {{ answer }}\n\nReply with A (correct), "
        "B (incorrect) or C (not attempted)."}},
      {JudgeMode::kRubric,
       {"You score an answer on a scale from 1 (worst) to {{ classes }} (best). You reply with one number.",
        "{% if rubric %}Rubric: {{ rubric }}\n{% endif %}Question: {{ question }}\n{% if references %}Reference answer: "
        "{{ references | join(' / ') }}\n{% endif %}Answer: {{ answer }}\n\nScore from 1 to {{ classes }}:"}},
      {JudgeMode::kPairwise,
       {"You compare two answers to a question and decide which one is better. Their order says nothing. You reply with one "
        "letter: A or B.",
        "Question: {{ question }}\n{% if references %}Reference answer: {{ references | join(' / ') }}\n{% endif %}\nAnswer A: "
        "{{ answer_a }}\n\nAnswer B: {{ answer_b }}\n\nWhich answer is better, A or B?"}},
      {JudgeMode::kChoice,
       {"You answer a multiple-choice question. You reply with one letter.",
        "Question: {{ question }}\n{% for option in options %}{{ 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[loop.index0] }}. {{ option }}\n"
        "{% endfor %}Answer:"}},
  };
  return prompts.at(mode);
}

std::vector<std::string> needed_fields(JudgeMode mode) {
  switch (mode) {
    case JudgeMode::kReference:
    case JudgeMode::kSimpleQa: return {"question", "references", "answer"};
    case JudgeMode::kRubric: return {"question", "answer"};
    case JudgeMode::kPairwise: return {"question", "answer_a", "answer_b"};
    case JudgeMode::kChoice: return {"question", "options"};
  }
  return {};
}

}  // namespace

JudgePrompts::JudgePrompts(const JudgeConfig& config, const Tokenizer& tokenizer) : config_(config), tokenizer_(tokenizer) {
  const Prompt& own = default_prompt(config.mode);
  system_ = config.system_prompt.empty() && config.user_prompt.empty() ? own.system : config.system_prompt;
  user_ = config.user_prompt.empty() ? own.user : config.user_prompt;
  system_template_ = ChatTemplate::parse(system_, "prompt.system");
  user_template_ = ChatTemplate::parse(user_, "prompt.user");
  if (config.use_chat_template && (!config.model.chat_template.empty() || ChatPrompts::has_template(config.model.path))) {
    chat_ = std::make_unique<ChatPrompts>(config.model.path, config.model.chat_template, tokenizer);
  }
}

std::vector<VerdictClass> JudgePrompts::classes() const {
  std::vector<VerdictClass> classes;
  switch (config_.mode) {
    case JudgeMode::kReference: return {{"yes", {"yes"}}, {"no", {"no"}}};
    case JudgeMode::kSimpleQa: return {{"correct", {"A"}}, {"incorrect", {"B"}}, {"not_attempted", {"C"}}};
    case JudgeMode::kPairwise: return {{"A", {"A"}}, {"B", {"B"}}};
    case JudgeMode::kRubric:
      for (std::uint64_t score = 1; score <= config_.num_classes; ++score) classes.push_back({std::to_string(score), {std::to_string(score)}});
      return classes;
    case JudgeMode::kChoice:
      for (std::uint64_t letter = 0; letter < config_.num_classes; ++letter) {
        const std::string name(1, static_cast<char>('A' + letter));
        classes.push_back({name, {name}});
      }
      return classes;
  }
  return classes;
}

std::vector<TokenId> JudgePrompts::one(const ordered_json& fields, const std::string& where) const {
  try {
    const std::string system = system_template_->render(fields).text, user = user_template_->render(fields).text;
    if (chat_) {
      ordered_json messages = ordered_json::array();
      if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
      messages.push_back({{"role", "user"}, {"content", user}});
      return chat_->encode(messages, true, where);
    }
    return tokenizer_.encode((system.empty() ? "" : system + "\n\n") + user, {.add_special_tokens = true, .special_tokens_in_text = false});
  } catch (const TemplateRefusal& refusal) {
    fail(ExitCode::kData, "{}: {}", where, refusal.what());
  }
}

std::vector<std::vector<TokenId>> JudgePrompts::encode(const Record& record, const std::vector<std::string>& answers) const {
  const ordered_json line = ordered_json::parse(record.text);  // checked by the data set already
  ordered_json fields = line;
  for (const auto& [name, other] : config_.fields) fields[name] = record_field(record.text, other, record.where);
  fields["classes"] = config_.num_classes;
  if (!fields.contains("rubric")) fields["rubric"] = nullptr;
  if (fields.contains("references") && fields["references"].is_string()) fields["references"] = ordered_json::array({fields["references"]});
  if (!fields.contains("references") && fields.contains("reference")) fields["references"] = ordered_json::array({fields["reference"]});
  if (!answers.empty()) fields["answer"] = answers.front();
  const bool own_prompt = config_.user_prompt.empty();
  for (const std::string& name : own_prompt ? needed_fields(config_.mode) : std::vector<std::string>()) {
    if (!fields.contains(name)) record_field(fields.dump(), name, record.where);  // says what is there
  }
  if (!fields.contains("references")) fields["references"] = nullptr;

  std::vector<std::vector<TokenId>> samples;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, answers.size()); ++i) {
    if (!answers.empty()) fields["answer"] = answers[i];
    samples.push_back(one(fields, record.where));
    if (config_.mode != JudgeMode::kPairwise) continue;
    std::swap(fields["answer_a"], fields["answer_b"]);
    samples.push_back(one(fields, record.where));
    std::swap(fields["answer_a"], fields["answer_b"]);
  }
  return samples;
}

std::string JudgePrompts::sha256() const {
  return sha256_hex(system_ + '\0' + user_ + '\0' + (chat_ ? chat_->sha256() : "plain"));
}

}  // namespace magister
