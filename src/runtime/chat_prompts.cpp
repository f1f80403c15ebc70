// Converts messages into tokens; see chat_prompts.h.
#include "magister/runtime/chat_prompts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "magister/core/error.h"
#include "magister/io/dataset/field_path.h"
#include "magister/io/dataset/record_json.h"
#include "magister/text/verifier.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// Guards the special tokens in every text inside the messages. Roles stay unchanged, since the template interprets
// them.
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

// The type of a message's part that is an image, a video or a sound; empty: it is none.
std::string other_than_text(const ordered_json& part) {
  constexpr const char* kOthers[] = {"image",     "image_url", "input_image", "video",
                                     "video_url", "audio",     "audio_url",   "input_audio"};
  if (!part.is_object()) return "";
  const std::string type =
      part.contains("type") && part.at("type").is_string() ? part.at("type").get<std::string>() : "";
  for (const char* other : kOthers) {
    if (type == other || (part.contains(other) && !part.at(other).is_null())) return other;
  }
  return "";
}

void check_messages(const ordered_json& messages, const std::string& where) {
  MAGISTER_CHECK(messages.is_array(), ExitCode::kData,
                 "{}: messages is not a list (a chat is a list of objects with role and "
                 "content); fix this line",
                 where);
  MAGISTER_CHECK(!messages.empty(), ExitCode::kData,
                 "{}: messages is an empty list (there is no chat to write); remove this record", where);
  for (const ordered_json& message : messages) {
    MAGISTER_CHECK(message.is_object() && message.contains("role") && message.at("role").is_string(), ExitCode::kData,
                   "{}: a message has no role (a chat is a list of objects with role and content); fix this line",
                   where);
    if (!message.contains("content") || !message.at("content").is_array()) continue;
    for (const ordered_json& part : message.at("content")) {
      const std::string other = other_than_text(part);
      MAGISTER_CHECK(other.empty(), ExitCode::kData,
                     "{}: a message has a part of the type {} (only texts are read, and the answer would be about "
                     "something that the model never saw); remove the record or the part",
                     where, printable(other));
    }
  }
}

}  // namespace

ChatPrompts::ChatPrompts(Checkpoint& checkpoint, const DatasetConfig& dataset)
    : tokenizer_(checkpoint.tokenizer()), trusted_(dataset.special_tokens_in_messages) {
  const ChatSource* const source = checkpoint.chat_source();
  MAGISTER_CHECK(source != nullptr, ExitCode::kConfig,
                 "{}: the model has no chat template (chats cannot be written as it was "
                 "trained on them); use a chat model, or name a template with model.chat_template",
                 printable(checkpoint.path()));
  if (!source->text.empty()) template_ = ChatTemplate::parse(source->text, source->name);
  if (!source->tool_text.empty()) tool_template_ = ChatTemplate::parse(source->tool_text, source->name + " (tool_use)");
  variables_ = ordered_json::object();
  for (const auto& [name, text] : source->tokens) variables_[name] = text;
  add_variables(checkpoint.section());
  MAGISTER_CHECK(dataset.tools_field.empty() || writes_tools(), ExitCode::kConfig,
                 "dataset.tools is {}, but {} writes no tools (the model would not see them); remove it, or use a "
                 "model or a template with tools",
                 printable(dataset.tools_field), printable(source->name));
}

bool ChatPrompts::writes_tools() const {
  const auto& names = (tool_template_ ? tool_template_ : template_)->names();
  return std::any_of(names.begin(), names.end(), [](const TemplateName& name) { return name.name == "tools"; });
}

void ChatPrompts::add_variables(const ModelSection& section) {
  const std::vector<std::string> own = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
  std::vector<std::string> read;
  for (const auto* one : {&template_, &tool_template_}) {
    if (!one->has_value()) continue;
    for (const TemplateName& name : (*one)->names()) {
      if (std::find(own.begin(), own.end(), name.name) == own.end()) read.push_back(name.name);
    }
  }
  for (const auto& [name, value] : section.chat_template_kwargs) {
    MAGISTER_CHECK(std::find(own.begin(), own.end(), name) == own.end(), ExitCode::kConfig,
                   "{}: {} is not a variable to set (the chat itself gives it); remove it",
                   section.chat_template_kwargs_place, name);
    const std::string nearest = nearest_name(name, read);
    MAGISTER_CHECK(std::find(read.begin(), read.end(), name) != read.end(), ExitCode::kConfig,
                   "{}: the chat template reads no variable {} (it would do nothing; it reads {}); {}",
                   section.chat_template_kwargs_place, printable(name),
                   read.empty() ? "none" : fmt::format("{}", fmt::join(read, ", ")),
                   nearest.empty() ? "remove it" : "did you mean " + nearest + "?");
    std::visit([&, &key = name](const auto& typed) { variables_[key] = typed; }, value);
  }
}

bool ChatPrompts::Chat::is_empty() const {
  return std::all_of(messages.begin(), messages.end(), [](const ordered_json& message) {
    const auto content = message.find("content");
    if (content == message.end() || content->empty()) return true;  // null and []
    return content->is_string() && is_blank(content->get_ref<const std::string&>());
  });
}

ChatPrompts::Chat ChatPrompts::chat_of(const Record& record, const DatasetConfig& dataset) {
  Chat chat{record_field(record, dataset.messages_field)};
  if (dataset.tools_field.empty()) return chat;
  chat.tools = record_field(record, dataset.tools_field);
  // Some data sets store tools as JSON inside a text, to have columns of one type.
  if (chat.tools.is_string()) chat.tools = parse_record(chat.tools.get<std::string>());
  const bool good = chat.tools.is_null() ||
                    (chat.tools.is_array() && std::all_of(chat.tools.begin(), chat.tools.end(),
                                                          [](const ordered_json& tool) { return tool.is_object(); }));
  MAGISTER_CHECK(good, ExitCode::kData,
                 "{}: {} is not a list of objects (tools are JSON Schemas of functions, or null); fix this line",
                 record.where, printable(dataset.tools_field));
  // As in the reference, a template that asks `if tools` treats null and an empty list alike; both stay as they are.
  return chat;
}

ChatPrompts::Chat ChatPrompts::safe(const Chat& chat) const {
  if (trusted_) return chat;
  return {guarded(chat.messages, tokenizer_), guarded(chat.tools, tokenizer_)};
}

RenderedChat ChatPrompts::render(const Chat& guarded, bool answer_follows) const {
  ordered_json variables = {{"messages", guarded.messages}, {"add_generation_prompt", answer_follows}};
  if (!guarded.tools.is_null()) variables["tools"] = guarded.tools;
  variables.update(variables_);
  const std::optional<ChatTemplate>& used = tool_template_ && !guarded.tools.is_null() ? tool_template_ : template_;
  MAGISTER_CHECK(used.has_value(), ExitCode::kData,
                 "the chat has no tools, and the model's only chat template is {} (as in transformers, chats without "
                 "tools need the one called default); name one with model.chat_template",
                 tool_template_->source());
  return used->render(variables);
}

// The template writes BOS itself if the model needs one.
std::vector<TokenId> ChatPrompts::tokens(const std::string& text) const {
  return tokenizer_.encode(text, {.add_special_tokens = false, .special_tokens_in_text = true, .guarded = true});
}

std::vector<TokenId> ChatPrompts::encode(const Chat& chat, bool answer_follows, const std::string& where) const {
  check_messages(chat.messages, where);
  try {
    return tokens(render(safe(chat), answer_follows).text);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

// The answer of message i is the difference of two texts: the chat before it, with the prompt for an answer, and the
// chat that ends with it. A template may write the answer differently once other turns follow (Qwen3 and DeepSeek drop
// the thoughts of earlier turns), or its prompt for an answer may differ from the answer's beginning. The text of such
// a turn is not what the model would generate there, so it is left out.
ChatPrompts::Answers ChatPrompts::answers_by_prefix(const Chat& guarded, const std::string& whole) const {
  const ordered_json& guarded_messages = guarded.messages;
  Answers found;
  Chat so_far{ordered_json::array(), guarded.tools};
  for (const ordered_json& message : guarded_messages) {
    if (message.at("role") != "assistant") {
      so_far.messages.push_back(message);
      continue;
    }
    const std::optional<std::string> before = rendered(so_far, true);
    so_far.messages.push_back(message);
    const std::optional<std::string> after = rendered(so_far, false);
    if (!before || !after || !whole.starts_with(*before) || !whole.starts_with(*after) ||
        !after->starts_with(*before)) {
      ++found.left_out;
      continue;
    }
    std::size_t end = after->size();
    while (end > before->size() && std::isspace(static_cast<unsigned char>((*after)[end - 1])) != 0) --end;
    found.spans.push_back({before->size(), end});
  }
  return found;
}

// No value if the template refuses a chat that ends here, although it accepts the whole chat.
std::optional<std::string> ChatPrompts::rendered(const Chat& guarded, bool answer_follows) const {
  try {
    return render(guarded, answer_follows).text;
  } catch (const TemplateRefusal&) {
    return std::nullopt;
  }
}

// Every token with a byte of a span counts as the assistant's, as in transformers, also one that crosses the span's
// edge.
std::vector<std::uint8_t> ChatPrompts::marks(const std::string& text, const std::vector<TokenId>& ids,
                                             const std::vector<TextSpan>& spans) const {
  std::vector<std::uint8_t> marks(ids.size(), 0);
  const auto bytes_before = [&](std::size_t place) { return Tokenizer::without_guards(text.substr(0, place)).size(); };
  const auto ends = tokenizer_.token_ends(Tokenizer::without_guards(text), ids);
  // If the tokens do not spell the text, a position in it is the number of leading tokens that the encoded prefix and
  // the whole text have in common.
  const auto place = [&](std::size_t bytes) {
    const std::vector<TokenId> prefix = tokens(text.substr(0, bytes));
    return std::mismatch(prefix.begin(), prefix.end(), ids.begin(), ids.end()).first - prefix.begin();
  };
  for (const TextSpan& span : spans) {
    if (!ends) {
      const auto begin = place(span.begin), end = std::max(begin, place(span.end));
      std::fill(marks.begin() + begin, marks.begin() + end, std::uint8_t{1});
      continue;
    }
    const std::size_t begin = bytes_before(span.begin), end = bytes_before(span.end);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t token_begin = i == 0 ? 0 : (*ends)[i - 1], token_end = (*ends)[i];
      if (std::max(begin, token_begin) < std::min(end, token_end)) marks[i] = 1;
    }
  }
  return marks;
}

std::vector<TokenId> ChatPrompts::encode_answered(Chat chat, const std::string& answer,
                                                  const std::string& where) const {
  chat.messages.push_back({{"role", "assistant"}, {"content", answer}});
  return encode(chat, false, where);
}

SampleTokens ChatPrompts::encode_marked(const Chat& given, const std::string& where, bool needs_answer) const {
  check_messages(given.messages, where);
  try {
    const Chat guarded_chat = safe(given);
    const RenderedChat chat = render(guarded_chat, false);
    MAGISTER_CHECK(
        chat.generated.empty() || chat.unplaced.empty(), ExitCode::kData,
        "{}: the text of this generation block is kept in a variable, filtered or joined to another, or only asked "
        "for, and other blocks write directly (theirs would be marked as the assistant's, its own would not); let the "
        "block, or the macro around it, write its text directly",
        chat.unplaced);
    const Answers answers =
        chat.generated.empty() ? answers_by_prefix(guarded_chat, chat.text) : Answers{chat.generated, 0};
    MAGISTER_CHECK(!needs_answer || !answers.spans.empty() || answers.left_out > 0, ExitCode::kData,
                   "no message is the assistant's (nothing would be scored); remove the record or use `score: all`");
    SampleTokens marked(tokens(chat.text));
    marked.assistant = marks(chat.text, marked.ids, answers.spans);
    marked.turns_left_out = answers.left_out;
    return marked;
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

const ordered_json& record_field(const Record& record, const std::string& field) {
  std::string missing;
  if (const ordered_json* const found = find_field(*record.fields, field, missing)) return *found;
  MAGISTER_CHECK(!parse_field_path(field), ExitCode::kData,
                 "{}: there is no field \"{}\" (the experiment asks for it; {}); fix this line or the experiment",
                 record.where, printable(field), missing);
  std::vector<std::string> names;
  for (const auto& [name, value] : record.fields->items()) names.push_back(name);
  const std::string nearest = nearest_name(field, names);
  fail(ExitCode::kData,
       "{}: there is no field \"{}\" (the experiment asks for it; the record has {}); {}fix this line or the "
       "experiment",
       record.where, printable(field), printable(fmt::format("{}", fmt::join(names, ", ")), 200),
       nearest.empty() ? "" : "did you mean \"" + printable(nearest) + "\"? else ");
}

std::string prompt_text(const Record& record, const DatasetConfig& dataset) {
  if (!dataset.whole_record) return record.text;
  const ordered_json& value = record_field(record, dataset.text_field);
  MAGISTER_CHECK(value.is_string(), ExitCode::kData,
                 "{}: \"{}\" is no text (the model continues a text); fix this record", record.where,
                 printable(dataset.text_field));
  return value.get<std::string>();
}

}  // namespace magister
