// See record_prompt.h.
#include "magister/runtime/record_prompt.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "magister/core/config.h"
#include "magister/core/error.h"
#include "magister/io/dataset/record_json.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kLookedAt = 100;  // records whose fields count as known

// The errors of a template of the experiment are errors of the experiment.
ChatTemplate parsed(const std::string& text, const char* name, const std::string& task) {
  try {
    return ChatTemplate::parse(text, name);
  } catch (const Error& error) {
    fail(ExitCode::kConfig, "tasks: {}: {}", task, error.what());
  }
}

void check(const ChatTemplate& prompt, const std::vector<std::string>& known, const std::string& task) {
  for (const TemplateName& name : prompt.names()) {
    if (name.tested_for_absence || std::binary_search(known.begin(), known.end(), name.name)) continue;
    const std::string near = nearest_name(name.name, known);
    fail(ExitCode::kConfig,
         "tasks: {}: {}:{}:{}: \"{}\" is not a field of the records (known: {}; it would be written as nothing); "
         "{}name one of them, or test for it with {{% if {} is defined %}}",
         task, prompt.source(), name.line, name.column, printable(name.name, 80),
         printable(fmt::format("{}", fmt::join(known, ", ")), 400),
         near.empty() ? "" : fmt::format("did you mean \"{}\"? else ", printable(near, 80)), printable(name.name, 80));
  }
}

}  // namespace

RecordPrompt::RecordPrompt(const PromptTexts& templates, const std::string& task)
    : task_(task),
      system_(parsed(templates.system, "prompt.system", task)),
      user_(parsed(templates.user, "prompt.user", task)) {}

std::vector<std::string> RecordPrompt::names() const {
  std::set<std::string> names;
  for (const ChatTemplate* const part : {&system_, &user_})
    for (const TemplateName& name : part->names()) names.insert(name.name);
  return {names.begin(), names.end()};
}

PromptTexts RecordPrompt::render(const ordered_json& fields, const std::vector<std::string>& may_be_empty,
                                 const std::string& where) const {
  RenderOptions options;
  options.strict = true;
  options.may_be_empty = may_be_empty;
  try {
    return {system_.render(fields, options).text, user_.render(fields, options).text};
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

void RecordPrompt::check_names(const std::vector<std::string>& known, bool system, bool user) const {
  if (system) check(system_, known, task_);
  if (user) check(user_, known, task_);
}

PromptEncoder::PromptEncoder(Checkpoint& checkpoint, bool use_chat_template) : tokenizer_(checkpoint.tokenizer()) {
  if (use_chat_template && checkpoint.chat_source() != nullptr)
    chat_ = std::make_unique<ChatPrompts>(checkpoint, DatasetConfig{});
}

std::vector<TokenId> PromptEncoder::encode(const PromptTexts& prompt, const std::string& where) const {
  if (chat_) {
    ordered_json messages = ordered_json::array();
    if (!prompt.system.empty()) messages.push_back({{"role", "system"}, {"content", prompt.system}});
    messages.push_back({{"role", "user"}, {"content", prompt.user}});
    return chat_->encode({messages}, true, where);
  }
  return tokenizer_.encode((prompt.system.empty() ? "" : prompt.system + "\n\n") + prompt.user,
                           {.add_special_tokens = true, .special_tokens_in_text = false});
}

std::vector<std::string> first_field_names(const Dataset& dataset) {
  const IndexRange records = dataset.records();
  std::set<std::string> names;
  dataset.for_each({records.begin, std::min(records.end, records.begin + kLookedAt)}, [&](Record&& record) {
    for (const auto& [name, value] : record.fields->items()) names.insert(name);
  });
  return {names.begin(), names.end()};
}

std::string field_as_text(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? std::string() : record_text(value);
}

}  // namespace magister
