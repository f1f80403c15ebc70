// An item as JSON: what the export jsonl writes. Local.
#pragma once

#include <nlohmann/json.hpp>

#include "tasks/exam/item.h"

namespace magister {

// {"id", "kind", "objective_number", "objective_text", "stem", "choices": [{"text", "explanation"}], "key",
//  "accepted": [text], "value", "tolerance", "explanation", "difficulty", "bloom", "cited": {"path", "chunk", "text"}};
// keys that do not belong to the kind are absent, and the key is a number from 0. Numbers that JSON
// cannot hold are null.
nlohmann::ordered_json item_json(const ExamItem& item);

// Absent keys have their defaults. Error(kData) for values of other types and unknown names.
ExamItem item_of_json(const nlohmann::ordered_json& json);

}  // namespace magister
