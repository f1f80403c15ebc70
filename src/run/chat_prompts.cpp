// The way from messages to tokens; see chat_prompts.h.
#include "magister/run/chat_prompts.h"

#include <fmt/ranges.h>

#include "magister/core/error.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// Every text inside the messages with its special tokens guarded; roles are the template's business and stay.
ordered_json guarded(const ordered_json& value, const Tokenizer& tokenizer) {
  if (value.is_string()) return tokenizer.guard_special_tokens(value.get<std::string>());
  ordered_json copy = value;
  if (value.is_array()) {
    for (ordered_json& entry : copy) entry = guarded(entry, tokenizer);
  } else if (value.is_object()) {
    for (auto& [name, entry] : copy.items()) {
      if (name != "role") entry = guarded(entry, tokenizer);
    }
  }
  return copy;
}

void check_messages(const ordered_json& messages, const std::string& where) {
  MAGISTER_CHECK(messages.is_array(), ExitCode::kData,
                 "{}: messages is not a list (a chat is a list of objects with role and "
                 "content); fix this line",
                 where);
  for (const ordered_json& message : messages) {
    MAGISTER_CHECK(message.is_object() && message.contains("role") && message.at("role").is_string(), ExitCode::kData,
                   "{}: a message has no role (a chat is a list of objects with role and content); fix this line",
                   where);
  }
}

}  // namespace

ChatPrompts::ChatPrompts(Checkpoint& checkpoint, bool special_tokens_in_messages)
    : tokenizer_(checkpoint.tokenizer()), trusted_(special_tokens_in_messages) {
  const ChatSource* const source = checkpoint.chat_source();
  MAGISTER_CHECK(source != nullptr, ExitCode::kConfig,
                 "{}: the model has no chat template (chats cannot be written as it was "
                 "trained on them); use a chat model, or name a template with model.chat_template",
                 printable(checkpoint.path()));
  template_ = ChatTemplate::parse(source->text, source->name);
  bos_token_ = source->bos_token;
  eos_token_ = source->eos_token;
}

ordered_json ChatPrompts::safe(const ordered_json& messages) const {
  return trusted_ ? messages : guarded(messages, tokenizer_);
}

RenderedChat ChatPrompts::render(const ordered_json& guarded_messages, bool answer_follows) const {
  return template_->render({{"messages", guarded_messages},
                            {"add_generation_prompt", answer_follows},
                            {"bos_token", bos_token_},
                            {"eos_token", eos_token_}});
}

// The template writes BOS where the model wants one.
std::vector<TokenId> ChatPrompts::tokens(const std::string& text) const {
  return tokenizer_.encode(text, {.add_special_tokens = false, .special_tokens_in_text = true, .guarded = true});
}

std::vector<TokenId> ChatPrompts::encode(const ordered_json& messages, bool answer_follows,
                                         const std::string& where) const {
  check_messages(messages, where);
  try {
    return tokens(render(safe(messages), answer_follows).text);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

// The answer of message i stands between the text before it, with the prompt for an answer, and the text that ends with it.
std::vector<TextSpan> ChatPrompts::answers_by_prefix(const ordered_json& guarded_messages,
                                                     const std::string& whole) const {
  std::vector<TextSpan> spans;
  ordered_json so_far = ordered_json::array();
  for (std::size_t i = 0; i < guarded_messages.size(); ++i) {
    const bool answer = guarded_messages[i].at("role") == "assistant";
    const std::string before = answer ? render(so_far, true).text : "";
    so_far.push_back(guarded_messages[i]);
    if (!answer) continue;
    const std::string after = render(so_far, false).text;
    MAGISTER_CHECK(whole.starts_with(before) && whole.starts_with(after) && after.starts_with(before), ExitCode::kData,
                   "the chat template writes message {} differently when others follow, or its prompt for an answer is "
                   "not how an answer "
                   "begins (which tokens are the assistant's cannot be told); use `score: all`, or a template with "
                   "generation blocks",
                   i + 1);
    std::size_t end = after.size();
    while (end > before.size() && std::isspace(static_cast<unsigned char>(after[end - 1])) != 0) --end;
    spans.push_back({before.size(), end});
  }
  return spans;
}

ChatPrompts::MarkedTokens ChatPrompts::encode_marked(const ordered_json& messages, const std::string& where) const {
  check_messages(messages, where);
  try {
    const ordered_json guarded_messages = safe(messages);
    const RenderedChat chat = render(guarded_messages, false);
    const std::vector<TextSpan> spans =
        chat.generated.empty() ? answers_by_prefix(guarded_messages, chat.text) : chat.generated;
    MAGISTER_CHECK(!spans.empty(), ExitCode::kData,
                   "no message is the assistant's (nothing would be scored); remove the record or use `score: all`");
    MarkedTokens marked{tokens(chat.text), {}};
    marked.assistant.assign(marked.ids.size(), 0);
    // A place in the text is the number of tokens that the text up to it and the whole have in common.
    const auto place = [&](std::size_t bytes) {
      const std::vector<TokenId> prefix = tokens(chat.text.substr(0, bytes));
      return std::mismatch(prefix.begin(), prefix.end(), marked.ids.begin(), marked.ids.end()).first - prefix.begin();
    };
    for (const TextSpan& span : spans) {
      const auto begin = place(span.begin), end = std::max(begin, place(span.end));
      std::fill(marked.assistant.begin() + begin, marked.assistant.begin() + end, std::uint8_t{1});
    }
    return marked;
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

ordered_json record_field(const std::string& line, const std::string& field, const std::string& where) {
  ordered_json record = ordered_json::parse(line);  // checked by the data set already
  if (const auto found = record.find(field); found != record.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) names.push_back(name);
  const std::string nearest = nearest_name(field, names);
  fail(ExitCode::kData,
       "{}: there is no field \"{}\" (the experiment asks for it; the record has {}); {}fix this line or the "
       "experiment",
       where, printable(field), printable(fmt::format("{}", fmt::join(names, ", ")), 200),
       nearest.empty() ? "" : "did you mean \"" + printable(nearest) + "\"? else ");
}

}  // namespace magister
