// ChatPrompts: conversations -> tokens, by the model's own chat template. What stands inside messages stays text: a special
// token written there does not become one (prompt injection), whatever the template does around it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/runtime/checkpoint.h"
#include "magister/runtime/sample_tokens.h"
#include "magister/text/chat_template.h"
#include "magister/text/tokenizer.h"

namespace magister {

class ChatPrompts {
 public:
  // The checkpoint's chat template, with model.chat_template_kwargs as further variables, for chats of this data set. Throws
  // Error(kConfig) when it has none, and for variables or tools that the template does not read (they would silently do nothing).
  // dataset.special_tokens_in_messages: what stands inside messages is trusted, and a special token written there is one. The
  // checkpoint's tokenizer is kept by reference.
  ChatPrompts(Checkpoint& checkpoint, const DatasetConfig& dataset);

  // messages: a list of objects with role and content; tools: a list of objects (JSON Schemas of functions), or null.
  struct Chat {
    nlohmann::ordered_json messages, tools = nullptr;
  };
  // The fields of a record (an object in one line) that the data set names. Throws Error(kData) with `where`.
  static Chat chat_of(const Record& record, const DatasetConfig& dataset);

  // With answer_follows the text ends where the assistant is to begin. Throws Error(kData) with `where`. Thread-safe.
  std::vector<TokenId> encode(const Chat& chat, bool answer_follows, const std::string& where) const;

  // The chat with this answer of the assistant behind it, as a reward model reads it.
  std::vector<TokenId> encode_answered(Chat chat, const std::string& answer, const std::string& where) const;

  // The whole chat, and which of its tokens the assistant wrote: 1 for tokens with a byte inside the template's {% generation %} blocks, or,
  // where it has none, between the place where an answer would begin and the end of the answer's turn (white space behind
  // its end token excluded). A turn that such a template writes differently once others follow has no such place: none of its tokens
  // is marked, and it is counted (turns_left_out). Throws Error(kData) with `where`, with needs_answer also when there is no turn of the
  // assistant. Thread-safe.
  SampleTokens encode_marked(const Chat& chat, const std::string& where, bool needs_answer) const;

 private:
  void add_variables(const ModelSection& section);
  Chat safe(const Chat& chat) const;
  RenderedChat render(const Chat& guarded, bool answer_follows) const;
  struct Answers {
    std::vector<TextSpan> spans;
    std::uint32_t left_out = 0;  // turns of which it cannot be told
  };
  Answers answers_by_prefix(const Chat& guarded, const std::string& whole) const;
  std::optional<std::string> rendered(const Chat& guarded, bool answer_follows) const;
  std::vector<TokenId> tokens(const std::string& text) const;
  std::vector<std::uint8_t> marks(const std::string& text, const std::vector<TokenId>& ids,
                                  const std::vector<TextSpan>& spans) const;

  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatTemplate> tool_template_;  // of chats with tools; none: the same
  bool trusted_;
  nlohmann::ordered_json variables_;  // of every chat: bos_token, eos_token, model.chat_template_kwargs
};

// A field (a name or a path) of a record that was read whole. Throws Error(kData) naming the fields that are there.
const nlohmann::ordered_json& record_field(const Record& record, const std::string& field);

// The text of a record, of the data set's field `text`. Throws Error(kData) with its place.
std::string prompt_text(const Record& record, const DatasetConfig& dataset);

}  // namespace magister
