// See item_text.h.
#include "tasks/exam/item_text.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace magister {
namespace {

using nlohmann::ordered_json;

ordered_json bounded_text(int least, int most) {
  return {{"type", "string"}, {"minLength", least}, {"maxLength", most}};
}

std::string without_ends(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

void read_answer(const ordered_json& written, const ItemForm& form, ExamItem& item) {
  switch (form.kind) {
    case ItemKind::kChoice:
      item.choices.push_back({without_ends(written.at("answer").get<std::string>()), ""});
      for (const ordered_json& wrong : written.at("distractors"))
        item.choices.push_back({without_ends(wrong.get<std::string>()), ""});
      return;
    case ItemKind::kTrueFalse:
      item.choices = {{"True", ""}, {"False", ""}};
      item.key = written.at("answer").get<bool>() ? 0 : 1;
      return;
    case ItemKind::kShortAnswer:
      item.accepted = {without_ends(written.at("answer").get<std::string>())};
      return;
    case ItemKind::kNumeric:
      item.value = written.at("answer").get<double>();
      item.tolerance = written.at("tolerance").get<double>();
  }
}

}  // namespace

std::string item_schema(const ItemForm& form) {
  ordered_json properties;
  if (form.passages > 1) {
    properties["passage"]["enum"] = ordered_json::array();
    for (std::size_t i = 1; i <= form.passages; ++i) properties["passage"]["enum"].push_back(i);
  }
  properties["question"] = bounded_text(10, 300);
  switch (form.kind) {
    case ItemKind::kChoice:
      properties["answer"] = bounded_text(1, 120);
      properties["distractors"] = {{"type", "array"},
                                   {"items", bounded_text(1, 120)},
                                   {"minItems", form.choices - 1},
                                   {"maxItems", form.choices - 1}};
      break;
    case ItemKind::kTrueFalse:
      properties["answer"] = {{"type", "boolean"}};
      break;
    case ItemKind::kShortAnswer:
      properties["answer"] = bounded_text(1, 60);
      break;
    case ItemKind::kNumeric:
      properties["answer"] = {{"type", "number"}};
      properties["tolerance"] = {{"type", "number"}, {"minimum", 0}};
      break;
  }
  properties["explanation"] = bounded_text(1, 300);
  ordered_json required = ordered_json::array();
  for (const auto& [name, schema] : properties.items()) required.push_back(name);
  return ordered_json{{"type", "object"}, {"properties", properties}, {"required", required}}.dump();
}

std::string item_keys(const ItemForm& form) {
  std::string keys;
  if (form.passages > 1) keys += "passage (the number of the passage that it is about), ";
  keys += form.kind == ItemKind::kTrueFalse ? "question (the statement), " : "question, ";
  switch (form.kind) {
    case ItemKind::kChoice:
      keys += "answer (the only right answer), distractors (a list of " + std::to_string(form.choices - 1) +
              " wrong answers, all different and as long as the right one), ";
      break;
    case ItemKind::kTrueFalse:
      keys += "answer (true or false), ";
      break;
    case ItemKind::kShortAnswer:
      keys += "answer (one to five words), ";
      break;
    case ItemKind::kNumeric:
      keys += "answer (a number), tolerance (how far from it an answer may be), ";
      break;
  }
  return keys + "explanation (why the answer is right)";
}

std::optional<WrittenItem> read_item(std::string_view text, const ItemForm& form) {
  const ordered_json written = ordered_json::parse(text, nullptr, false);
  if (!written.is_object()) return std::nullopt;
  try {
    WrittenItem read;
    read.item.kind = form.kind;
    read.item.stem = without_ends(written.at("question").get<std::string>());
    read.item.explanation = without_ends(written.at("explanation").get<std::string>());
    if (form.passages > 1) read.passage = written.at("passage").get<std::size_t>() - 1;
    if (read.passage >= form.passages) return std::nullopt;
    read_answer(written, form, read.item);
    return read;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace magister
