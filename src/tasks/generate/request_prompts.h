// The prompt of a request of a batch file: a chat in the protocol's form, or, of /v1/completions, a text or token ids.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/text/tokenizer.h"

namespace magister {

// True for a request for the answer to a chat; false: for the continuation of a prompt.
bool is_chat_request(const nlohmann::ordered_json& request);

// Faults of body.messages, body.tools and body.prompt beyond what a chat template refuses. writes_tools: the model's
// chat template does.
void check_prompt(const nlohmann::ordered_json& body, bool is_chat, bool writes_tools,
                  std::vector<std::string>& faults);

// The messages as templates of models read them: a message's text parts are one text, with a line break between two,
// and the arguments of a call are an object, as vLLM hands both over. Without tools if tool_choice is none.
ChatPrompts::Chat chat_of_request(const nlohmann::ordered_json& body);

// The tokens of a request that was checked. chats: not null if the request is a chat. A prompt's text begins with the
// tokenizer's own tokens, and special tokens written in it count as such, as in vLLM.
std::vector<TokenId> tokens_of_request(const Record& record, const Tokenizer& tokenizer, const ChatPrompts* chats);

// True for a request whose texts are all blank.
bool is_blank_request(const Record& record);

}  // namespace magister
