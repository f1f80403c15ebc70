// Which tokens end a text, and whether a chat template ends a turn with one of them.
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

// eos_token_id of the adapter's generation_config.json (a training of this program writes one where chats end their turns with another token),
// else of the model's, else of its config.json, a number or a list; of a GGUF file all that ends a text in llama.cpp. Empty where nothing is
// named. adapter: its folder, or empty. Throws Error(kData) for a file that is not JSON. Local.
std::vector<TokenId> read_end_tokens(const std::string& model_path, const std::string& adapter,
                                     const ModelConfig& config, const TensorFile* file);

// What a chat template writes behind an answer.
struct TurnEnd {
  TokenId token = -1;  // its first special token, -1: it writes none
  std::string text;    // that token's, else what is written; empty: white space at most
  std::string template_name;
};

// What a training puts behind a text: eos_token of the tokenizer's tokenizer_config.json, as TRL, else the first of the checkpoint's; -1: none.
TokenId text_end_token(Checkpoint& checkpoint);
// The checkpoint's, and before them the tokenizer's own eos_token where it is none of them: by these TRL's GRPO ends its texts.
std::vector<TokenId> policy_end_tokens(Checkpoint& checkpoint);

// What two chats of a question and an answer both end with, where none of its tokens is one of `ends`. Nothing where one is, where there is no
// template, or where it refuses such a chat. Reads the checkpoint's template and tokenizer.
std::optional<TurnEnd> unended_turn(Checkpoint& checkpoint, std::span<const TokenId> ends);
// "2 "</s>"", for messages.
std::string describe_end_tokens(Checkpoint& checkpoint, std::span<const TokenId> ends);
// Warns where that is so and something is written. name: of the task; stops: token ids and texts that end its texts. Local; said once for the world.
void warn_of_unended_turn(Checkpoint& checkpoint, const std::string& name, std::span<const TokenId> ends,
                          std::span<const std::string> stop_texts = {});

}  // namespace magister
