// What ends the student's texts: chats teach it to end a turn as their template does, and who generates with it goes by
// generation_config.json.
#pragma once

#include <optional>
#include <vector>

#include "magister/core/types.h"
#include "magister/runtime/checkpoint.h"
#include "tasks/train/config.h"

namespace magister {

// How the texts end that a student learns.
struct LearntEnds {
  bool chats = false;                             // by the template of the student's own
  bool chats_of_another = false;                  // of a teacher with another template
  TokenId appended = -1;                          // to texts; -1: none
  std::optional<std::vector<TokenId>> written{};  // of texts that the student itself writes
};

// Where they are not the model's own; the first ends a turn. Reads tokenizer and template of the checkpoint.
std::vector<TokenId> student_ends(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt);
// Says so, and warns where nothing ends a turn. Of rank 0.
void say_student_ends(Checkpoint& checkpoint, const TrainConfig& config, const LearntEnds& learnt);

}  // namespace magister
