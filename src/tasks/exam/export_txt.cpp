// Three text files in the form of the seed's exam generator: 80 columns of "=" and "-" around sections and problems.
#include <fmt/format.h>

#include <string>

#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"

namespace magister {
namespace {

const std::string kDouble(80, '='), kSingle(80, '-');

std::string first_numbers(const std::string& number, int count) {
  std::size_t at = 0;
  for (; at < number.size(); ++at) {
    if (number[at] == '.' && --count == 0) break;
  }
  return number.substr(0, at);
}

void add_section(std::string& text, const ExamItem& item) {
  text += kDouble + "\n";
  const std::string topic = first_numbers(item.objective_number, 1);
  const std::string subtopic = first_numbers(item.objective_number, 2);
  if (!topic.empty()) text += "TOPIC " + topic + "\n";
  if (subtopic != topic) text += "SUBTopic " + subtopic + "\n";
  const std::string objective = one_line(item.objective_text);
  if (!item.objective_number.empty()) {
    text += fmt::format("LEARNING OBJECTIVE {}: {}\n", item.objective_number, objective);
  }
  if (!objective.empty()) text += "Topic: " + objective + "\n";
  text += kDouble + "\n\n";
}

void add_question(std::string& text, const ExamItem& item, bool marks_key) {
  text += fmt::format("Topic: {}\nDifficulty: {}\n\nQuestion: {}\n\n", one_line(item.objective_text),
                      name_of(item.difficulty), shown_text(item.stem));
  if (item.kind == ItemKind::kShortAnswer || item.kind == ItemKind::kNumeric) return;
  text += "Choices:\n";
  for (std::size_t i = 0; i < item.choices.size(); ++i) {
    const std::string_view words =
        item.kind == ItemKind::kTrueFalse ? truth_word(item, i) : std::string_view(item.choices[i].text);
    text += fmt::format("  {}. {}{}\n", choice_letter(i), shown_text(words), marks_key && i == item.key ? " ✓" : "");
  }
  text += "\n";
}

void add_solution(std::string& text, const ExamItem& item) {
  const bool has_letters = item.kind == ItemKind::kChoice || item.kind == ItemKind::kTrueFalse;
  const std::string answer = has_letters ? std::string(1, choice_letter(item.key)) : one_line(right_answer(item));
  text += fmt::format("Correct Answer: {}\n\nExplanation:\n{}\n\n", answer, shown_text(item.explanation));
}

std::string exam_text(const Exam& exam, const char* title, bool questions, bool solutions) {
  std::string text = fmt::format("{}\n{}\n{}\n\n", kDouble, title, kDouble);
  const ExamItem* last = nullptr;
  std::size_t number = 0;
  for (const ExamItem& item : exam.items) {
    if (last == nullptr || last->objective_number != item.objective_number ||
        last->objective_text != item.objective_text) {
      if (last != nullptr) text += "\n";
      add_section(text, item);
    }
    last = &item;
    text += fmt::format("Problem {}\n{}\n", ++number, kSingle);
    if (questions) add_question(text, item, solutions);
    if (solutions) add_solution(text, item);
    text += kDouble + "\n\n";
  }
  text.pop_back();  // the lines are joined: the last one, which is empty, has no line end
  return text;
}

}  // namespace

std::vector<ExamFile> exam_txt(const Exam& exam) {
  return {{"_Problems.txt", exam_text(exam, "EXAM PROBLEMS", true, false)},
          {"_Solutions.txt", exam_text(exam, "EXAM SOLUTIONS", false, true)},
          {"_Problems_with_solutions.txt", exam_text(exam, "EXAM PROBLEMS WITH SOLUTIONS", true, true)}};
}

}  // namespace magister
