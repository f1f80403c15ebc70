// RecordPrompt: a prompt as two templates over a record's fields, one for the system and one for the user. Tasks that
// write or judge texts share it. Templates are those of chats (ChatTemplate), rendered strictly: an absent field is an
// error with the record's place.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/checkpoint.h"
#include "magister/text/chat_template.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct PromptTexts {
  std::string system, user;  // an empty system prompt is left out
};

class RecordPrompt {
 public:
  // task: its name, for messages. Throws Error(kConfig) for a text that is no template.
  RecordPrompt(const PromptTexts& templates, const std::string& task);

  // The names that the templates read, each once, ascending.
  std::vector<std::string> names() const;
  // may_be_empty: fields whose text may be empty without a test in the template. Throws with `where`.
  PromptTexts render(const nlohmann::ordered_json& fields, const std::vector<std::string>& may_be_empty,
                     const std::string& where) const;
  // Throws Error(kConfig) with line and column for the first name that is not among `known` (ascending) and that the
  // template does not test for. system, user: which of the two are checked.
  void check_names(const std::vector<std::string>& known, bool system = true, bool user = true) const;

 private:
  std::string task_;
  ChatTemplate system_, user_;
};

// Turns prompts into tokens: as a chat by the model's template, or as plain text.
class PromptEncoder {
 public:
  // use_chat_template false, or a model without a template: plain text. Keeps a reference to the checkpoint's
  // tokenizer. Throws like ChatPrompts.
  PromptEncoder(Checkpoint& checkpoint, bool use_chat_template);

  bool is_chat() const { return chat_ != nullptr; }
  // Ends where the model's answer begins. Throws Error(kData) with `where`. Thread-safe.
  std::vector<TokenId> encode(const PromptTexts& prompt, const std::string& where) const;

 private:
  const Tokenizer& tokenizer_;
  std::unique_ptr<ChatPrompts> chat_;  // null: plain text
};

// The names of the fields of the first 100 records, ascending. Local.
std::vector<std::string> first_field_names(const Dataset& dataset);

// A field as text: strings are unchanged, null is "", everything else is JSON.
std::string field_as_text(const nlohmann::ordered_json& value);

}  // namespace magister
