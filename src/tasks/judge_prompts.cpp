// Prompts of a record in the order of its samples: text after text, prompt after prompt, and of a pair both orders.
#include "tasks/judge_prompts.h"

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "tasks/judge_templates.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// "answer" and "references" come in several shapes; templates see one.
void settle_references(ordered_json& fields) {
  if (fields.contains("references") && fields["references"].is_string()) fields["references"] = ordered_json::array({fields["references"]});
  if (!fields.contains("references") && fields.contains("reference")) fields["references"] = ordered_json::array({fields["reference"]});
}

}  // namespace

JudgePrompts::JudgePrompts(const JudgeConfig& config, Checkpoint& checkpoint) : config_(config), tokenizer_(checkpoint.tokenizer()) {
  for (const JudgePromptConfig& wished : config.prompts) {
    const JudgeTemplate& ready = judge_template(config.mode, wished.named);
    const bool all_own = !wished.user.empty() && wished.named.empty();
    const std::string system = !wished.system.empty() || all_own ? wished.system : ready.system;
    const std::string user = wished.user.empty() ? ready.user : wished.user;
    texts_ += system + '\0' + user + '\0';
    uses_ready_user_ = uses_ready_user_ || wished.user.empty();
    prompts_.push_back({ChatTemplate::parse(system, "prompt.system"), ChatTemplate::parse(user, "prompt.user")});
  }
  std::vector<std::string> words;
  for (const VerdictClass& one : classes()) words.push_back(one.words.front());
  reply_rule_ = reply_rule(config, words);
  if (config.use_chat_template && checkpoint.chat_source() != nullptr) chat_ = std::make_unique<ChatPrompts>(checkpoint);
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

std::vector<TokenId> JudgePrompts::one(const Prompt& prompt, const ordered_json& fields, const std::string& where) const {
  try {
    const std::string system = prompt.system.render(fields).text, user = prompt.user.render(fields).text;
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

ordered_json JudgePrompts::fields_of(const Record& record, const std::vector<std::string>& answers) const {
  ordered_json fields = ordered_json::parse(record.text);  // checked by the data set already
  for (const auto& [name, other] : config_.fields) fields[name] = record_field(record.text, other, record.where);
  fields["classes"] = config_.num_classes;
  fields["reply_rule"] = reply_rule_;
  if (!fields.contains("rubric")) fields["rubric"] = nullptr;
  settle_references(fields);
  if (!answers.empty()) fields["answer"] = answers.front();
  for (const std::string& name : uses_ready_user_ ? needed_fields(config_.mode) : std::vector<std::string>()) {
    if (!fields.contains(name)) record_field(fields.dump(), name, record.where);  // says what is there
  }
  if (!fields.contains("references")) fields["references"] = nullptr;
  return fields;
}

std::vector<std::vector<TokenId>> JudgePrompts::encode(const Record& record, const std::vector<std::string>& answers) const {
  ordered_json fields = fields_of(record, answers);
  std::vector<std::vector<TokenId>> samples;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, answers.size()); ++i) {
    if (!answers.empty()) fields["answer"] = answers[i];
    for (const Prompt& prompt : prompts_) {
      samples.push_back(one(prompt, fields, record.where));
      if (config_.mode != JudgeMode::kPairwise) continue;
      std::swap(fields["answer_a"], fields["answer_b"]);
      samples.push_back(one(prompt, fields, record.where));
      std::swap(fields["answer_a"], fields["answer_b"]);
    }
  }
  return samples;
}

std::string JudgePrompts::sha256() const { return sha256_hex(texts_ + reply_rule_ + '\0' + (chat_ ? "chat" : "plain")); }

}  // namespace magister
