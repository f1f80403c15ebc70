#include "tasks/exam/item_json.h"

#include <string>

#include "magister/core/error.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

// The value of the enum, 0 to last, that has this name.
template <typename Enum>
Enum value_named(const std::string& name, Enum last) {
  for (int value = 0; value <= static_cast<int>(last); ++value) {
    if (name == name_of(static_cast<Enum>(value))) return static_cast<Enum>(value);
  }
  fail(ExitCode::kData, "\"{}\" is no known name (the item cannot be read); see the page of the task exam",
       printable(name));
}

}  // namespace

ordered_json item_json(const ExamItem& item) {
  ordered_json json{{"id", item.id},
                    {"kind", name_of(item.kind)},
                    {"objective_number", item.objective_number},
                    {"objective_text", item.objective_text},
                    {"stem", item.stem}};
  if (item.kind == ItemKind::kChoice || item.kind == ItemKind::kTrueFalse) {
    json["choices"] = ordered_json::array();
    for (const ItemChoice& choice : item.choices) {
      json["choices"].push_back({{"text", choice.text}, {"explanation", choice.explanation}});
    }
    json["key"] = item.key;
  } else if (item.kind == ItemKind::kShortAnswer) {
    json["accepted"] = item.accepted;
  } else {
    json["value"] = item.value;
    json["tolerance"] = item.tolerance;
  }
  json["explanation"] = item.explanation;
  json["difficulty"] = name_of(item.difficulty);
  json["bloom"] = name_of(item.bloom);
  json["cited"] = {{"path", item.cited.path}, {"chunk", item.cited.number}, {"text", item.cited.text}};
  return json;
}

ExamItem item_of_json(const ordered_json& json) {
  try {
    ExamItem item;
    item.id = json.value("id", "");
    item.kind = value_named(json.value("kind", "choice"), ItemKind::kNumeric);
    item.objective_number = json.value("objective_number", "");
    item.objective_text = json.value("objective_text", "");
    item.stem = json.value("stem", "");
    for (const ordered_json& choice : json.value("choices", ordered_json::array())) {
      item.choices.push_back({choice.value("text", ""), choice.value("explanation", "")});
    }
    item.key = json.value("key", std::size_t{0});
    item.accepted = json.value("accepted", std::vector<std::string>());
    item.value = json.value("value", 0.0);
    item.tolerance = json.value("tolerance", 0.0);
    item.explanation = json.value("explanation", "");
    item.difficulty = value_named(json.value("difficulty", ""), ItemDifficulty::kHard);
    item.bloom = value_named(json.value("bloom", ""), BloomLevel::kCreate);
    if (json.contains("cited")) {
      item.cited = {json["cited"].value("path", ""), json["cited"].value("chunk", std::uint64_t{0}),
                    json["cited"].value("text", "")};
    }
    return item;
  } catch (const ordered_json::exception& error) {
    fail(ExitCode::kData, "an item of an exam cannot be read: {} (its fields have other types); write it anew",
         printable(error.what()));
  }
}

}  // namespace magister
