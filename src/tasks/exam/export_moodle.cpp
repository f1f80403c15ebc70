// Moodle XML: the elements that Moodle's own export has (question/format/xml). Texts are plain_text: shown as typed.
#include <fmt/format.h>

#include <string>

#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"

namespace magister {
namespace {

std::string element(const char* name, std::string_view text) {
  return fmt::format("<{} format=\"plain_text\"><text>{}</text></{}>", name, markup(shown_text(text)), name);
}

std::string answer(std::string_view text, bool is_right, std::string_view feedback, const std::string& more = {}) {
  return fmt::format("    <answer fraction=\"{}\" format=\"plain_text\"><text>{}</text>{}{}</answer>\n",
                     is_right ? 100 : 0, markup(text), element("feedback", feedback), more);
}

std::string answers(const ExamItem& item) {
  std::string text;
  switch (item.kind) {
    case ItemKind::kChoice:
      text =
          "    <single>true</single>\n    <shuffleanswers>false</shuffleanswers>\n"
          "    <answernumbering>ABCD</answernumbering>\n";
      for (std::size_t i = 0; i < item.choices.size(); ++i) {
        text += answer(shown_text(item.choices[i].text), i == item.key, item.choices[i].explanation);
      }
      break;
    case ItemKind::kTrueFalse:
      for (std::size_t i = 0; i < 2; ++i) {
        text += answer(i == 0 ? "true" : "false", i == item.key, item.choices[i].explanation);
      }
      break;
    case ItemKind::kShortAnswer:
      text = "    <usecase>0</usecase>\n";
      for (const std::string& accepted : item.accepted) text += answer(moodle_short_answer(accepted), true, "");
      break;
    case ItemKind::kNumeric:
      text = answer(shortest_number(item.value), true, "",
                    fmt::format("<tolerance>{}</tolerance>", shortest_number(item.tolerance)));
      text +=
          "    <unitgradingtype>0</unitgradingtype>\n    <unitpenalty>0.1</unitpenalty>\n"
          "    <showunits>3</showunits>\n    <unitsleft>0</unitsleft>\n";
  }
  return text;
}

std::string tags(const ExamItem& item) {
  std::string text;
  for (const char* tag : {name_of(item.difficulty), name_of(item.bloom)}) {
    if (*tag != 0) text += fmt::format("<tag><text>{}</text></tag>", tag);
  }
  if (!item.objective_number.empty()) text += fmt::format("<tag><text>{}</text></tag>", markup(item.objective_number));
  return text.empty() ? text : fmt::format("    <tags>{}</tags>\n", text);
}

}  // namespace

std::vector<ExamFile> exam_moodle(const Exam& exam) {
  constexpr const char* kTypes[] = {"multichoice", "truefalse", "shortanswer", "numerical"};
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<quiz>\n";
  if (const std::string title = one_line(exam.title); !title.empty()) {
    std::string category;
    for (const char c : title) category += c == '/' ? "//" : std::string(1, c);
    text += fmt::format("  <question type=\"category\"><category><text>{}</text></category></question>\n",
                        markup(category));
  }
  for (const ExamItem& item : exam.items) {
    text += fmt::format("  <question type=\"{}\">\n    <name><text>{}</text></name>\n    {}\n    {}\n",
                        kTypes[static_cast<std::size_t>(item.kind)], markup(one_line(item.id)),
                        element("questiontext", item.stem), element("generalfeedback", item.explanation));
    text += "    <defaultgrade>1</defaultgrade>\n    <penalty>0.3333333</penalty>\n    <hidden>0</hidden>\n";
    text += answers(item) + tags(item) + "  </question>\n";
  }
  return {{".moodle.xml", text + "</quiz>\n"}};
}

}  // namespace magister
