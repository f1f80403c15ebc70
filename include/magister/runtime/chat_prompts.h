// ChatPrompts: conversations -> tokens, by the model's own chat template. The content of messages stays text: a special
// token written there does not become one (prompt injection), whatever the template writes around it.
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
  // Uses the checkpoint's chat template, with model.chat_template_kwargs as further variables, for chats of this data
  // set. Throws Error(kConfig) if there is no template, and for variables or tools that the template does not read
  // (they would silently do nothing). dataset.special_tokens_in_messages: message content is trusted, and a special
  // token written there becomes one. Keeps a reference to the checkpoint's tokenizer.
  ChatPrompts(Checkpoint& checkpoint, const DatasetConfig& dataset);

  // messages: a list of objects with role and content; tools: a list of objects (JSON Schemas of functions), or null.
  struct Chat {
    nlohmann::ordered_json messages, tools = nullptr;
    // True if the contents of all messages are missing, empty or white space.
    bool is_empty() const;
  };
  // Takes the fields that the data set names from a record (a JSON object in one line). Throws Error(kData) with
  // `where`.
  static Chat chat_of(const Record& record, const DatasetConfig& dataset);

  // False: the template writes no tools, so the model would not see those of a chat.
  bool writes_tools() const;

  // With answer_follows the text ends where the assistant's answer begins. Throws Error(kData) with `where`.
  // Thread-safe.
  std::vector<TokenId> encode(const Chat& chat, bool answer_follows, const std::string& where) const;

  // Encodes the chat followed by this answer of the assistant, as a reward model reads it.
  std::vector<TokenId> encode_answered(Chat chat, const std::string& answer, const std::string& where) const;

  // Encodes the whole chat and marks with 1 the tokens that the assistant wrote. These are the tokens with a byte
  // inside the template's {% generation %} blocks. Without such blocks they are the tokens from the place where an
  // answer would begin to the end of the answer's turn (without white space after its end token). If a template writes
  // a turn differently once other turns follow, there is no such place: none of its tokens is marked, and the turn is
  // counted (turns_left_out). Throws Error(kData) with `where`, with needs_answer also if there is no turn of the
  // assistant. Thread-safe.
  SampleTokens encode_marked(const Chat& chat, const std::string& where, bool needs_answer) const;

 private:
  void add_variables(const ModelSection& section);
  Chat safe(const Chat& chat) const;
  RenderedChat render(const Chat& guarded, bool answer_follows) const;
  struct Answers {
    std::vector<TextSpan> spans;
    std::uint32_t left_out = 0;  // turns whose place is unknown
  };
  Answers answers_by_prefix(const Chat& guarded, const std::string& whole) const;
  std::optional<std::string> rendered(const Chat& guarded, bool answer_follows) const;
  std::vector<TokenId> tokens(const std::string& text) const;
  std::vector<std::uint8_t> marks(const std::string& text, const std::vector<TokenId>& ids,
                                  const std::vector<TextSpan>& spans) const;

  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatTemplate> tool_template_;  // for chats with tools; none: template_
  bool trusted_;
  nlohmann::ordered_json variables_;  // in every chat: bos_token, eos_token, model.chat_template_kwargs
};

// Returns a field (a name or a path) of a record that was parsed whole. Throws Error(kData) that lists the existing
// fields.
const nlohmann::ordered_json& record_field(const Record& record, const std::string& field);

// Returns the text of a record, from the data set's field `text`. Throws Error(kData) with its place.
std::string prompt_text(const Record& record, const DatasetConfig& dataset);

}  // namespace magister
