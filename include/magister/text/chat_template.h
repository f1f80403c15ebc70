// ChatTemplate: a conversation becomes the text that a chat model was trained on, by the model's own template (Jinja).
// Renders byte for byte what Hugging Face transformers' apply_chat_template renders, or throws: there is no third way.
// Reference: Jinja 3.1 in transformers' environment (sandboxed and immutable, trim_blocks, lstrip_blocks, loop controls,
// `generation` blocks, tojson without HTML escapes). What is not known here is refused by name: template inheritance and
// imports, recursive loops, autoescape, and the filters and methods that no chat template needs.
// A template is foreign code: it can neither reach anything outside its variables nor run without bounds.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/error.h"

namespace magister {

struct RenderOptions {
  // What strftime_now() takes for the present, in seconds since 1970-01-01 00:00 UTC. Without it a template that asks for
  // the date is refused: a prompt must not depend on the day of the run.
  std::optional<std::int64_t> now;
  std::uint64_t max_bytes = std::uint64_t{16} << 20;  // of the result and of every text on the way
  std::uint64_t max_steps = 10'000'000;               // statements, expressions, list items, and every 64 bytes of text
  // For prompts that are written for this program, not for a model's own template: what is absent is refused where it is used
  // (as jinja2's StrictUndefined does), and so is a variable that is null or empty and that the template tests nowhere, and a
  // null that would be written as "None".
  bool strict = false;
  std::vector<std::string> may_be_empty = {};  // strict: variables whose text may be empty, untested
};

// A name that a template reads from its variables.
struct TemplateName {
  std::string name;
  int line = 1, column = 1;         // of its first use
  bool tested_for_absence = false;  // somewhere: x is defined, x | default(...)
  bool tested_for_emptiness =
      false;  // somewhere: if x, x or y, x is none, x == "", x | length > 0, for ... else, x | default(..., true)
};

// Bytes [begin, end) of the rendered text.
struct TextSpan {
  std::size_t begin = 0, end = 0;
};

struct RenderedChat {
  std::string text;  // UTF-8
  // What stood between {% generation %} and {% endgeneration %}, in order: the tokens of the assistant's own turns.
  // Only blocks that write straight into the result count; one inside a macro or a {% set %} block has no place in it yet.
  std::vector<TextSpan> generated;
};

// The template itself refused the conversation with raise_exception(). Exit code kData.
class TemplateRefusal : public Error {
 public:
  TemplateRefusal(const std::string& what, std::string message)
      : Error(ExitCode::kData, what), message_(std::move(message)) {}
  const std::string& message() const noexcept { return message_; }  // the template's own words

 private:
  std::string message_;
};

// Immutable after construction; render() may be called from several threads at once.
class ChatTemplate {
 public:
  // text is UTF-8; source is the name for messages. Throws Error(kData) with source:line:column for what is not a template, and
  // for filters, tests, statements and methods that are not known here, used or not.
  static ChatTemplate parse(std::string_view text, const std::string& source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // What the template neither sets itself nor gets from a loop, a macro or `with`, in the order of first use, each name once.
  const std::vector<TemplateName>& names() const;
  const std::string& source() const;

  // variables: an object with messages, and as the caller has them tools, documents, add_generation_prompt, bos_token,
  // eos_token and whatever else the template reads. An absent name and null differ, except that (as in the reference)
  // absent tools and documents are null and an absent add_generation_prompt is false; a message's keys that are null are left
  // out; and its reasoning under one of the names reasoning_content, thinking, reasoning is also given under the first two.
  // Object keys keep their order.
  // A binary value holds the spelling of a number that JSON libraries have no type for (io/dataset/record_json.h): whole numbers
  // beyond 64 bits are written and compared, and refused where a template computes with them.
  // Throws TemplateRefusal or Error(kData).
  RenderedChat render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

// The template in the text of a tokenizer_config.json: the field chat_template, or of a list of named ones the one called
// `name`. Empty if there is none. Throws Error(kData) with source on a file that is not valid.
std::optional<std::string> chat_template_from_config(std::string_view tokenizer_config_json, const std::string& source,
                                                     std::string_view name = "default");

}  // namespace magister
