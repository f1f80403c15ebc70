// The tokens that end a text, and the turns of a chat template that none of them ends.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "magister/runtime/checkpoint.h"

namespace magister {

// The tokens that end a text: eos_token_id, a number or a list, of the adapter's generation_config.json (a training of
// this program writes one if its chats end their turns with another token), else of the model's generation_config.json,
// else of its config.json; for a GGUF file all tokens that end a text in llama.cpp. Empty if no file names any.
// adapter: its folder, or empty. Throws Error(kData) for a file that is not JSON. Local.
std::vector<TokenId> read_end_tokens(const std::string& model_path, const std::string& adapter,
                                     const ModelConfig& config, const TensorFile* file);

// The text that a chat template writes after an answer.
struct TurnEnd {
  TokenId token = -1;  // its first special token; -1: it writes none
  std::string text;    // text of that token, else all that is written; empty: at most white space
  std::string template_name;
};

// The token that a training puts after a text: eos_token of the tokenizer's tokenizer_config.json, as in TRL, else the
// first of the checkpoint's end tokens; -1: none.
TokenId text_end_token(Checkpoint& checkpoint);
// The checkpoint's end tokens, preceded by the tokenizer's own eos_token if it is not one of them: TRL's GRPO ends its
// texts with these.
std::vector<TokenId> policy_end_tokens(Checkpoint& checkpoint);

// The end of a turn that contains none of `ends`, found as the common end of two chats of a question and an answer. No
// value if a token of it is in `ends`, if there is no template, or if the template refuses such a chat. Reads the
// checkpoint's template and tokenizer.
std::optional<TurnEnd> unended_turn(Checkpoint& checkpoint, std::span<const TokenId> ends);
// The tokens as `2 "</s>", 7 "<end>"`, for messages.
std::string describe_end_tokens(Checkpoint& checkpoint, std::span<const TokenId> ends);
// Logs a warning if unended_turn() finds an end of a turn that is not empty. name: the task's name; ends, stop_texts:
// the token ids and the texts that end its texts. Local; only rank 0 writes the warning.
void warn_of_unended_turn(Checkpoint& checkpoint, const std::string& name, std::span<const TokenId> ends,
                          std::span<const std::string> stop_texts = {});

}  // namespace magister
