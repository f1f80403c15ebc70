// The tokens that end the student's texts. Chats teach it to end a turn as their template does, and programs that
// generate with it read the end tokens from generation_config.json.
#pragma once

#include <optional>
#include <vector>

#include "magister/core/types.h"
#include "magister/runtime/checkpoint.h"
#include "tasks/train/config.h"

namespace magister {

// How the texts end that a student learns from.
struct LearntEnds {
  bool chats = false;                             // chats written by the template of the student
  bool chats_of_another = false;                  // chats of a teacher with another template
  TokenId appended = -1;                          // end token that is appended to texts; -1: none
  std::optional<std::vector<TokenId>> written{};  // end tokens of texts that the student itself generates
};

// The end tokens of the student; empty: those of the model. The first one ends a turn. Reads tokenizer and template of
// the checkpoint.
std::vector<TokenId> student_ends(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt);
// Logs these tokens, and warns if no token ends a turn. Called on rank 0.
void say_student_ends(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt);

}  // namespace magister
