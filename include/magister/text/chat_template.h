// ChatTemplate renders a conversation into the text that a chat model was trained on, by the model's own template
// (Jinja). It renders byte for byte what Hugging Face transformers' apply_chat_template renders, or throws.
// Reference: Jinja 3.1 in transformers' environment (sandboxed and immutable, trim_blocks, lstrip_blocks, loop
// controls, `generation` blocks, tojson without HTML escapes). Unsupported features are refused by name: template
// inheritance and imports, recursive loops, autoescape, and filters and methods that no chat template needs.
// A template is untrusted code: it can neither reach anything outside its variables nor run without bounds.
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
  // The present for strftime_now(), in seconds since 1970-01-01 00:00 UTC. Without it a template that asks for the date
  // is refused: a prompt must not depend on the day of the run.
  std::optional<std::int64_t> now;
  // Bound on the result and on every intermediate text.
  std::uint64_t max_bytes = std::uint64_t{16} << 20;
  std::uint64_t max_steps = 10'000'000;  // statements, expressions, list items, and every 64 bytes of text
  // For prompts written for this program, not for a model's own template. Refused are: an absent variable where it is
  // used (as jinja2's StrictUndefined does), a null or empty variable that the template never tests, and a null that
  // would be written as "None".
  bool strict = false;
  std::vector<std::string> may_be_empty = {};  // strict: variables whose text may be empty without a test
};

// A name that a template reads from its variables.
struct TemplateName {
  std::string name;
  int line = 1, column = 1;         // first use
  bool tested_for_absence = false;  // tested somewhere by: x is defined, x | default(...)
  // Tested somewhere by: if x, x or y, x is none, x == "", x | length > 0, for ... else, x | default(..., true).
  bool tested_for_emptiness = false;
};

// Bytes [begin, end) of the rendered text.
struct TextSpan {
  std::size_t begin = 0, end = 0;
};

struct RenderedChat {
  std::string text;  // UTF-8
  // Text between {% generation %} and {% endgeneration %}, in order: the assistant's own turns. A block counts where it
  // writes into the result, directly or in a macro whose text is all that an output or a {% call %} writes.
  std::vector<TextSpan> generated;
  // "template:line:column" of the first other block, whose position in the result is unknown because its text is kept
  // in a variable, filtered or joined to another; empty: there is none.
  std::string unplaced;
};

// The template itself refused the conversation with raise_exception(). Exit code kData.
class TemplateRefusal : public Error {
 public:
  TemplateRefusal(const std::string& what, std::string message)
      : Error(ExitCode::kData, what), message_(std::move(message)) {}
  const std::string& message() const noexcept { return message_; }  // the template's own message

 private:
  std::string message_;
};

// Immutable after construction; render() may be called from several threads at once.
class ChatTemplate {
 public:
  // text is UTF-8; source is the name for messages. Throws Error(kData) with source:line:column for text that is not a
  // template, and for filters, tests, statements and methods that are not supported, used or not.
  static ChatTemplate parse(std::string_view text, const std::string& source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Names that the template neither sets itself nor gets from a loop, a macro or `with`, in the order of first use,
  // each once.
  const std::vector<TemplateName>& names() const;
  const std::string& source() const;

  // variables: an object with messages and, as the caller has them, tools, documents, add_generation_prompt, bos_token,
  // eos_token and whatever else the template reads. An absent name and null differ, with exceptions that follow the
  // reference: absent tools and documents are null, and an absent add_generation_prompt is false. Null keys of a
  // message are left out. A message's reasoning under one of the names reasoning_content, thinking, reasoning is also
  // given under the first two. Object keys keep their order.
  // A binary value holds the spelling of a number that JSON libraries have no type for (io/dataset/record_json.h):
  // whole numbers beyond 64 bits are written and compared, and refused where a template computes with them.
  // Throws TemplateRefusal or Error(kData).
  RenderedChat render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

// Returns the field chat_template of a tokenizer_config.json; if it is a list of named templates, the one called
// `name`. Empty if there is none. Throws Error(kData) with source if the file is not valid.
std::optional<std::string> chat_template_from_config(std::string_view tokenizer_config_json, const std::string& source,
                                                     std::string_view name = "default");

}  // namespace magister
