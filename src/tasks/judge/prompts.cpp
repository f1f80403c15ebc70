// Prompts of a record in the order of its samples: text by text, prompt by prompt, and for a pair both orders.
#include "magister/tasks/judge/prompts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/dataset/record_json.h"
#include "magister/text/verifier.h"
#include "tasks/judge/templates.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// Sorted. A model may have written nothing; that is judged like any other answer.
const std::vector<std::string> kMayBeEmpty = {"answer", "answer_a", "answer_b"};

bool is_nothing(const ordered_json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

// Throws because a ready prompt needs a field that the record does not have.
[[noreturn]] void refuse_without(const std::string& name, const Record& record) {
  std::vector<std::string> names;
  for (const auto& [field, value] : record.fields->items()) names.push_back(field);
  const std::string nearest = nearest_name(name, names);
  fail(ExitCode::kData,
       "{}: there is no field \"{}\" (the ready prompt asks for it; the record has {}); {}name the field that is meant "
       "with fields: {{{}: {}}}{}",
       record.where, name, printable(fmt::format("{}", fmt::join(names, ", ")), 200),
       nearest.empty() ? "" : "did you mean \"" + printable(nearest) + "\"? ", name,
       nearest.empty() ? "NAME" : printable(nearest),
       name == "answer" ? ", or take the texts of a generate task: answers" : ", or write a prompt of your own");
}

// References come in several forms; templates see a list, or null if there is none.
void settle_references(ordered_json& fields) {
  if (!fields.contains("references") && fields.contains("reference")) fields["references"] = fields["reference"];
  if (!fields.contains("references")) return;
  ordered_json& references = fields["references"];
  if (references.is_array()) {
    if (!references.empty() && std::all_of(references.begin(), references.end(), is_nothing)) references = nullptr;
  } else if (is_nothing(references)) {
    references = nullptr;
  } else if (!references.is_object()) {
    references = ordered_json::array({references});
  }
}

}  // namespace

JudgePrompts::JudgePrompts(const JudgeRules& config, Checkpoint& checkpoint)
    : config_(config), encoder_(checkpoint, config.use_chat_template) {
  for (const JudgePromptConfig& requested : config.prompts) {
    const JudgeTemplate& ready = judge_template(config.mode, requested.named);
    const bool all_own = !requested.user.empty() && requested.named.empty();
    const std::string system = !requested.system.empty() || all_own ? requested.system : ready.system;
    const std::string user = requested.user.empty() ? ready.user : requested.user;
    texts_ += system + '\0' + user + '\0';
    uses_ready_user_ = uses_ready_user_ || requested.user.empty();
    prompts_.push_back({RecordPrompt({system, user}, config.name), !requested.system.empty(), !requested.user.empty()});
  }
  std::vector<std::string> words;
  for (const VerdictClass& one : classes()) words.push_back(one.words.front());
  reply_rule_ = reply_rule(config, words);
}

std::vector<VerdictClass> verdict_classes(const JudgeRules& config) {
  std::vector<VerdictClass> classes;
  switch (config.mode) {
    case JudgeMode::kReference:
      return {{"yes", {"yes"}}, {"no", {"no"}}};
    case JudgeMode::kSimpleQa:
      return {{"correct", {"A"}}, {"incorrect", {"B"}}, {"not_attempted", {"C"}}};
    case JudgeMode::kPairwise:
      return {{"A", {"A"}}, {"B", {"B"}}};
    case JudgeMode::kRubric:
      for (std::uint64_t score = 1; score <= config.num_classes; ++score)
        classes.push_back({std::to_string(score), {std::to_string(score)}});
      return classes;
    case JudgeMode::kChoice:
      for (std::uint64_t letter = 0; letter < config.num_classes; ++letter) {
        const std::string name(1, static_cast<char>('A' + letter));
        classes.push_back({name, {name}});
      }
      return classes;
  }
  return classes;
}

std::vector<TokenId> JudgePrompts::one(const Prompt& prompt, const ordered_json& fields,
                                       const std::string& where) const {
  return encoder_.encode(prompt.texts.render(fields, kMayBeEmpty, where), where);
}

void JudgePrompts::check_fields(const Dataset& dataset, bool answers) const {
  if (dataset.records().size() == 0) return;
  std::set<std::string> known = {"classes", "reply_rule", "references", "rubric"};
  if (answers) known.insert("answer");
  for (const auto& [name, other] : config_.fields) known.insert(name);
  for (std::string& name : first_field_names(dataset)) known.insert(std::move(name));
  const std::vector<std::string> names(known.begin(), known.end());
  for (const Prompt& prompt : prompts_) prompt.texts.check_names(names, prompt.own_system, prompt.own_user);
}

ordered_json JudgePrompts::fields_of(const Record& record, const std::vector<std::string>& answers) const {
  ordered_json fields = *record.fields;
  for (const auto& [name, other] : config_.fields) fields[name] = record_field(record, other);
  fields["classes"] = config_.num_classes;
  fields["reply_rule"] = reply_rule_;
  if (!fields.contains("rubric")) fields["rubric"] = nullptr;
  settle_references(fields);
  if (!answers.empty()) fields["answer"] = answers.front();
  for (const std::string& name : uses_ready_user_ ? needed_fields(config_.mode) : std::vector<std::string>()) {
    if (!fields.contains(name)) refuse_without(name, record);
  }
  if (!fields.contains("references")) fields["references"] = nullptr;
  return fields;
}

std::vector<std::vector<TokenId>> JudgePrompts::encode(const Record& record,
                                                       const std::vector<std::string>& answers) const {
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

bool is_list_field(const std::string& name) { return name == "references" || name == "options"; }

std::vector<std::string> JudgePrompts::field_names() const {
  std::set<std::string> names;
  for (const Prompt& prompt : prompts_)
    for (std::string& name : prompt.texts.names()) names.insert(std::move(name));
  for (const char* const computed : {"classes", "reply_rule"}) names.erase(computed);
  return {names.begin(), names.end()};
}

std::vector<std::string> JudgePrompts::judged_fields() const {
  const std::vector<std::string> all = field_names();
  std::vector<std::string> judged;
  std::set_intersection(all.begin(), all.end(), kMayBeEmpty.begin(), kMayBeEmpty.end(), std::back_inserter(judged));
  return judged.empty() ? all : judged;
}

bool JudgePrompts::is_empty(const Record& record, const std::vector<std::string>& answers) const {
  const std::vector<std::string> names = field_names(), judged = judged_fields();
  for (const std::vector<std::string>& values : field_values(record, answers)) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool counts = std::find(judged.begin(), judged.end(), names[i]) != judged.end();
      if (counts && !is_blank(values[i]) && !(is_list_field(names[i]) && values[i] == "null")) return false;
    }
  }
  return true;
}

std::vector<std::vector<std::string>> JudgePrompts::field_values(const Record& record,
                                                                 const std::vector<std::string>& answers) const {
  const std::vector<std::string> names = field_names();
  ordered_json fields = fields_of(record, answers);
  std::vector<std::vector<std::string>> texts;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, answers.size()); ++i) {
    if (!answers.empty()) fields["answer"] = answers[i];
    std::vector<std::string>& values = texts.emplace_back();
    for (const std::string& name : names) {
      const ordered_json value = fields.contains(name) ? fields[name] : ordered_json();
      values.push_back(is_list_field(name) ? record_text(value) : field_as_text(value));
    }
  }
  return texts;
}

std::string JudgePrompts::sha256() const {
  return sha256_hex(texts_ + reply_rule_ + '\0' + (encoder_.is_chat() ? "chat" : "plain"));
}

}  // namespace magister
