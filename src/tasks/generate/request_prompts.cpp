// See request_prompts.h. Sources: the bodies of POST /v1/chat/completions and POST /v1/completions in OpenAI's
// reference; a prompt that is a list has one element, because one line has one answer.
#include "tasks/generate/request_prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "magister/io/dataset/record_json.h"
#include "magister/text/verifier.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

// Null if the key is absent or null.
const Json* given(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool are_ids(const Json& list) {
  return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), [](const Json& id) {
           return id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() <= INT32_MAX;
         });
}

// A text or a list of ids; null for anything else.
const Json* prompt_of(const Json& body) {
  const Json* prompt = given(body, "prompt");
  if (prompt != nullptr && prompt->is_array() && prompt->size() == 1 && !are_ids(*prompt)) prompt = &prompt->front();
  return prompt != nullptr && (prompt->is_string() || are_ids(*prompt)) ? prompt : nullptr;
}

bool is_text_part(const Json& part) {
  return part.is_object() && part.value("type", Json()) == "text" && part.contains("text") && part["text"].is_string();
}

void join_parts(Json& content) {
  if (!content.is_array() || content.empty() || !std::all_of(content.begin(), content.end(), is_text_part)) return;
  std::string text;
  for (const Json& part : content) {
    if (&part != &content.front()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  content = std::move(text);
}

void read_arguments(Json& message) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    const auto arguments = call["function"].find("arguments");
    if (arguments == call["function"].end() || !arguments->is_string()) continue;
    Json read = parse_record(arguments->get_ref<const std::string&>());
    if (read.is_object()) *arguments = std::move(read);
  }
}

// A template would write anything else as its source text.
bool is_text_message(const Json& message) {
  const Json* const content = message.is_object() ? given(message, "content") : nullptr;
  return content == nullptr || content->is_string() ||
         (content->is_array() && std::all_of(content->begin(), content->end(), is_text_part));
}

void check_messages(const Json& messages, std::vector<std::string>& faults) {
  if (messages.is_array() && !std::all_of(messages.begin(), messages.end(), is_text_message))
    faults.emplace_back(
        "body.messages has a content that is neither a text nor a list of text parts (only texts are read, and the "
        "answer would be about something that the model never saw); write it as text, or remove the request");
}

void check_tools(const Json& body, bool writes_tools, std::vector<std::string>& faults) {
  const Json* const choice = given(body, "tool_choice");
  if (choice != nullptr && *choice != "auto" && *choice != "none")
    faults.emplace_back("body.tool_choice is neither \"auto\" nor \"none\" (nothing makes a text a call); remove it");
  const Json* const tools = given(body, "tools");
  if (tools == nullptr) return;
  const bool good =
      tools->is_array() && std::all_of(tools->begin(), tools->end(), [](const Json& tool) { return tool.is_object(); });
  if (!good)
    faults.emplace_back("body.tools is no list of objects (they are JSON Schemas of functions); write such a list");
  else if (!tools->empty() && !writes_tools)
    faults.emplace_back(
        "body.tools is given, and the model's chat template writes no tools (the model would not see them); remove "
        "it, or use a model or a template with tools");
}

}  // namespace

bool is_chat_request(const Json& request) { return request.value("url", Json()) != "/v1/completions"; }

void check_prompt(const Json& body, bool is_chat, bool writes_tools, std::vector<std::string>& faults) {
  if (is_chat) {
    if (const Json* const messages = given(body, "messages"))
      check_messages(*messages, faults);
    else
      faults.emplace_back("body.messages is missing (there is no chat); add it");
    return check_tools(body, writes_tools, faults);
  }
  if (given(body, "prompt") == nullptr)
    faults.emplace_back("body.prompt is missing (there is nothing to continue); add it");
  else if (prompt_of(body) == nullptr)
    faults.emplace_back(
        "body.prompt is neither a text nor a list of token ids, nor a list of one of them (a line has one answer); "
        "write a request for each prompt");
}

ChatPrompts::Chat chat_of_request(const Json& body) {
  ChatPrompts::Chat chat{body.at("messages"), {}};
  if (chat.messages.is_array()) {
    for (Json& message : chat.messages) {
      if (!message.is_object()) continue;
      if (message.contains("content")) join_parts(message["content"]);
      read_arguments(message);
    }
  }
  const Json *const tools = given(body, "tools"), *const choice = given(body, "tool_choice");
  if (tools != nullptr && !tools->empty() && (choice == nullptr || *choice != "none")) chat.tools = *tools;
  return chat;
}

std::vector<TokenId> tokens_of_request(const Record& record, const Tokenizer& tokenizer, const ChatPrompts* chats) {
  const Json& body = record.fields->at("body");
  if (is_chat_request(*record.fields)) return chats->encode(chat_of_request(body), true, record.where);
  const Json& prompt = *prompt_of(body);
  return prompt.is_string() ? tokenizer.encode(prompt.get_ref<const std::string&>())
                            : prompt.get<std::vector<TokenId>>();
}

bool is_blank_request(const Record& record) {
  const Json& body = record.fields->at("body");
  if (is_chat_request(*record.fields)) return chat_of_request(body).is_empty();
  const Json* const prompt = prompt_of(body);
  return prompt != nullptr && prompt->is_string() && is_blank(prompt->get_ref<const std::string&>());
}

}  // namespace magister
