// Aiken and GIFT as Moodle's importers read them (Moodle 4.1, question/format/aiken and gift).
#include <fmt/format.h>

#include <string>

#include "magister/core/error.h"
#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"

namespace magister {
namespace {

bool begins_like_a_choice(const std::string& line) {
  return line.size() > 1 && line[0] >= 'A' && line[0] <= 'Z' && (line[1] == '.' || line[1] == ')');
}

// The backslash first; a line end as \n, so that every question has one line for each choice.
std::string gift_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("\\~=#{}:").find(c) != std::string_view::npos) result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

// A text that begins with a bracket could name a markup, and one with a percent sign a weight.
std::string gift_answer(std::string_view text) {
  const std::string shown = shown_text(text);
  return (shown.starts_with('[') || shown.starts_with('%') ? "[plain]" : "") + gift_text(shown);
}

std::string gift_feedback(const char* mark, std::string_view text) {
  const std::string shown = shown_text(text);
  return shown.empty() ? "" : mark + gift_answer(shown);
}

void add_answers(std::string& text, const ExamItem& item) {
  switch (item.kind) {
    case ItemKind::kChoice:
      for (std::size_t i = 0; i < item.choices.size(); ++i) {
        text += fmt::format("\n\t{}{}{}", i == item.key ? '=' : '~', gift_answer(item.choices[i].text),
                            gift_feedback("#", item.choices[i].explanation));
      }
      break;
    case ItemKind::kTrueFalse: {
      // The first comment is for the wrong answer.
      const std::string wrong = gift_feedback("#", item.choices[1 - item.key].explanation);
      const std::string right = gift_feedback("#", item.choices[item.key].explanation);
      text += item.key == 0 ? "T" : "F";
      text += wrong.empty() && !right.empty() ? "#" : wrong;
      text += right;
      break;
    }
    case ItemKind::kShortAnswer:
      for (const std::string& answer : item.accepted) text += "\n\t=" + gift_answer(moodle_short_answer(answer));
      break;
    case ItemKind::kNumeric:
      text += fmt::format("#{}:{}", shortest_number(item.value), shortest_number(item.tolerance));
  }
  const std::string general = gift_feedback("####", item.explanation);
  if (!general.empty()) text += "\n\t" + general;
  text += item.kind == ItemKind::kChoice || item.kind == ItemKind::kShortAnswer || !general.empty() ? "\n}\n" : "}\n";
}

}  // namespace

std::vector<std::string> refused_by_aiken(const Exam& exam) {
  std::vector<std::string> faults;
  for (const ExamItem& item : exam.items) {
    const std::string stem = one_line(item.stem);
    const char* fault = nullptr;
    if (item.kind != ItemKind::kChoice) {
      fault = "is no single choice";
    } else if (begins_like_a_choice(stem)) {
      fault = "has a stem that begins like a choice";
    } else if (stem.starts_with("ANSWER:")) {
      fault = "has a stem that begins with ANSWER:";
    }
    if (fault != nullptr) faults.push_back(fmt::format("item {}: {}", printable(item.id), fault));
  }
  return faults;
}

std::vector<ExamFile> exam_aiken(const Exam& exam) {
  std::string text;
  for (const ExamItem& item : exam.items) {
    text += one_line(item.stem) + "\n";
    for (std::size_t i = 0; i < item.choices.size(); ++i) {
      text += fmt::format("{}. {}\n", choice_letter(i), one_line(item.choices[i].text));
    }
    text += fmt::format("ANSWER: {}\n\n", choice_letter(item.key));
  }
  return {{".aiken.txt", std::move(text)}};
}

std::vector<std::string> refused_by_gift(const Exam& exam) {
  std::vector<std::string> faults;
  for (const ExamItem& item : exam.items) {
    if (item.kind != ItemKind::kShortAnswer) continue;
    for (const std::string& answer : item.accepted) {
      if (answer.find("->") == std::string::npos) continue;
      faults.push_back(fmt::format("item {}: an accepted answer holds ->", printable(item.id)));
      break;
    }
  }
  return faults;
}

std::vector<ExamFile> exam_gift(const Exam& exam) {
  std::string text;
  if (const std::string title = one_line(exam.title); !title.empty()) {
    text += "$CATEGORY: ";  // Moodle unescapes \\ in it and nothing else; a slash parts levels, two are a slash
    for (const char c : title) text += c == '/' ? "//" : c == '\\' ? "\\\\" : std::string(1, c);
    text += "\n\n";
  }
  for (const ExamItem& item : exam.items) {
    text += fmt::format("::{}::[plain]{} {{", gift_text(one_line(item.id)), gift_text(shown_text(item.stem)));
    add_answers(text, item);
    text += "\n";
  }
  return {{".gift", std::move(text)}};
}

}  // namespace magister
