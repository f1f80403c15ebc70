// The JSON that the model writes for an item: a schema for each kind, which keeps a text from ever needing repair, and
// its reading as an ExamItem. The right answer is a field of its own, so it is always in the set, and no letter is
// named: the choices are ordered later.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tasks/exam/item.h"

namespace magister {

struct ItemForm {
  ItemKind kind = ItemKind::kChoice;
  std::size_t choices = 4;   // of kChoice
  std::size_t passages = 1;  // of which the item cites one
};

// JSON schema; its texts are counted outside the grammar (has_one_reading()).
std::string item_schema(const ItemForm& form);
// Its keys in words, for a prompt. No example: small models copy it.
std::string item_keys(const ItemForm& form);

struct WrittenItem {
  ExamItem item;            // choices[0] is the key; without id, objective and cited chunk
  std::size_t passage = 0;  // the cited one, from 0
};
// nullopt: the text is not complete JSON of the schema; it was cut off. White space at the ends of texts is removed.
std::optional<WrittenItem> read_item(std::string_view text, const ItemForm& form);

}  // namespace magister
