// The public interface of the template engine: JSON in, text out.
#include "magister/text/chat_template.h"

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "magister/core/utf8.h"
#include "text/jinja/names.h"
#include "text/jinja/operations.h"
#include "text/jinja/parser.h"
#include "text/jinja/render.h"

namespace magister {
namespace {

using jinja::Kind;
using jinja::Value;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

Value value_of(const jinja::Runtime& runtime, const Json& json, int depth);

Value text_of(const jinja::Runtime& runtime, const std::string& text) {
  if (find_invalid_utf8(text) != text.size()) runtime.refuse("a text that is not valid UTF-8: {}", text.substr(0, 80));
  return Value::text(text);
}

// As Python reads it: a whole number has any length, and a number too large for a double is infinite.
Value spelled_number(const std::string& spelling) {
  const bool is_whole = spelling.find_first_of(".eE") == std::string::npos;
  return is_whole ? Value::big_integer(spelling) : Value::real(std::strtod(spelling.c_str(), nullptr));
}

Value dict_of(const jinja::Runtime& runtime, const Json& json, int depth) {
  auto dict = std::make_shared<jinja::Dict>();
  dict->entries.reserve(json.size());
  for (const auto& [name, part] : json.items()) {
    Value key = text_of(runtime, name), value = value_of(runtime, part, depth + 1);
    dict->depth = std::max(dict->depth, value.depth() + 1);
    dict->texts.emplace(key.as_text(), dict->entries.size());
    dict->entries.emplace_back(std::move(key), std::move(value));
  }
  return {Kind::kDict, std::move(dict)};
}

Value list_of(const jinja::Runtime& runtime, const Json& json, int depth) {
  auto list = std::make_shared<jinja::Sequence>();
  list->items.reserve(json.size());
  for (const Json& part : json) {
    list->items.push_back(value_of(runtime, part, depth + 1));
    list->depth = std::max(list->depth, list->items.back().depth() + 1);
  }
  return {Kind::kList, std::move(list)};
}

Value value_of(const jinja::Runtime& runtime, const Json& json, int depth) {
  if (depth >= jinja::kMaxDepth) runtime.refuse("variables nested deeper than {}", jinja::kMaxDepth);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return Value::big_integer(std::to_string(json.get<std::uint64_t>()));
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::binary:
      return spelled_number({json.get_binary().begin(), json.get_binary().end()});
    case Json::value_t::string:
      return text_of(runtime, json.get_ref<const std::string&>());
    case Json::value_t::array:
      return list_of(runtime, json, depth);
    case Json::value_t::object:
      return dict_of(runtime, json, depth);
    default:
      return Value::none();
  }
}

// Changes a message as the reference does before the template sees it. Null keys are dropped (tables have every key in
// every message, and templates would write "None"); nested nulls stay. The reasoning has one of three names, and every
// message that has one gets the keys `thinking` (first) and `reasoning_content`.
Json as_the_template_sees(const Json& message) {
  if (!message.is_object()) return message;
  Json kept = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!kept.contains(name)) continue;
    Json named = Json::object();
    named["thinking"] = kept[name];
    for (const auto& [key, value] : kept.items()) named[key] = value;
    named["reasoning_content"] = kept[name];
    return named;
  }
  return kept;
}

}  // namespace

struct ChatTemplate::Program {
  std::string source;
  jinja::Block block;
  std::vector<TemplateName> names;
};

const std::vector<TemplateName>& ChatTemplate::names() const { return program_->names; }
const std::string& ChatTemplate::source() const { return program_->source; }

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& source) {
  const std::size_t bad = find_invalid_utf8(text);
  MAGISTER_CHECK(bad == text.size(), ExitCode::kData,
                 "{}: not valid UTF-8 at byte {} (it cannot be read); fetch the file again", source, bad);
  MAGISTER_CHECK(text.size() <= kMaxTemplateBytes, ExitCode::kData,
                 "{}: {} bytes (no chat template is longer than {}); fetch the file again", source, text.size(),
                 kMaxTemplateBytes);
  auto program = std::make_unique<Program>();
  program->source = source;
  program->block = jinja::parse_template(text, source);
  program->names = jinja::free_names(program->block);
  return ChatTemplate(std::move(program));
}

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  jinja::Runtime runtime(program_->source, options);
  if (!variables.is_object()) runtime.refuse("the variables are not an object");
  const auto scope = std::make_shared<jinja::Scope>();
  if (!options.strict) {  // the reference always defines these three
    if (!variables.contains("tools")) scope->names.emplace_back("tools", Value::none());
    if (!variables.contains("documents")) scope->names.emplace_back("documents", Value::none());
    if (!variables.contains("add_generation_prompt"))
      scope->names.emplace_back("add_generation_prompt", Value::boolean(false));
  }
  for (const auto& [name, value] : variables.items()) {
    if (name != "messages" || !value.is_array() || options.strict) {
      scope->names.emplace_back(name, value_of(runtime, value, 1));
      continue;
    }
    Json messages = Json::array();
    for (const Json& message : value) messages.push_back(as_the_template_sees(message));
    scope->names.emplace_back(name, value_of(runtime, messages, 1));
  }
  return jinja::Renderer(runtime, program_->names).run(program_->block, scope);
}

std::optional<std::string> chat_template_from_config(std::string_view tokenizer_config_json, const std::string& source,
                                                     std::string_view name) {
  Json config;
  try {
    config = Json::parse(tokenizer_config_json);
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, "{}: is not valid JSON ({}); fetch the file again", source, printable(error.what()));
  }
  MAGISTER_CHECK(config.is_object(), ExitCode::kData,
                 "{}: is not a JSON object (it names no template); fetch the file again", source);
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return std::nullopt;
  const Json& field = config["chat_template"];
  if (field.is_string()) return field.get<std::string>();
  MAGISTER_CHECK(field.is_array(), ExitCode::kData,
                 "{}: chat_template is neither text nor a list of named ones (it cannot be used); fetch the file again",
                 source);
  for (const Json& entry : field) {
    const bool good = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                      entry.contains("template") && entry["template"].is_string();
    MAGISTER_CHECK(
        good, ExitCode::kData,
        "{}: a chat_template in the list has no name or no template (it cannot be used); fetch the file again", source);
    if (entry["name"].get_ref<const std::string&>() == name) return entry["template"].get<std::string>();
  }
  return std::nullopt;
}

}  // namespace magister
