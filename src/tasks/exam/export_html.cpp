// One page without scripts and without other files. Three buttons choose what it shows and prints: the questions, the
// solutions, or both.
#include <fmt/format.h>

#include <string>

#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"

namespace magister {
namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light; }
body { font: 11pt/1.45 Georgia, "Times New Roman", serif; color: #1a1a1a; background: #fff; max-width: 46rem; margin: 2rem auto; padding: 0 1.5rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; }
h2 { font: 600 1rem/1.4 system-ui, sans-serif; border-bottom: 1px solid #999; padding-bottom: .2rem; margin: 2rem 0 1rem; break-after: avoid; }
.count, .view label, .about { font: .85rem system-ui, sans-serif; color: #555; }
.view { margin: 1rem 0; } .view label { border: 1px solid #999; padding: .25rem .8rem; cursor: pointer; }
.view label + label { border-left: 0; }
input.choose { position: absolute; opacity: 0; }
#questions:checked ~ .view label[for=questions], #solutions:checked ~ .view label[for=solutions], #both:checked ~ .view label[for=both] { background: #1d4e89; color: #fff; }
input.choose:focus-visible ~ .view { outline: 2px solid #1d4e89; }
.item { break-inside: avoid; margin: 0 0 1.4rem; display: grid; grid-template-columns: 2.4rem minmax(0, 1fr); }
.number { font-weight: bold; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; unicode-bidi: isolate; }
ol { list-style: none; margin: .5rem 0 0; padding: 0; }
li { display: grid; grid-template-columns: 1.8rem minmax(0, 1fr); margin: .2rem 0; }
.line { border-bottom: 1px solid #777; height: 1.8rem; width: 60%; }
.solution { border-left: 3px solid #2e7d32; padding-left: .8rem; margin-top: .6rem; }
.answer { font-weight: bold; }
.why { font-size: .92em; color: #333; margin-top: .3rem; }
.why ol { margin: 0; }
#questions:checked ~ main .solution, #solutions:checked ~ main .question { display: none; }
@media print { body { margin: 0; max-width: none; padding: 0; } .view, input.choose { display: none; } @page { margin: 2cm; } }
)css";

// A block with a direction of its own, in which all characters are shown as they are.
std::string text_block(std::string_view text, const char* classes = "text") {
  return fmt::format("<div class=\"{}\" dir=\"auto\">{}</div>", classes, markup(shown_text(text)));
}

std::string_view words_of(const ExamItem& item, std::size_t choice) {
  return item.kind == ItemKind::kTrueFalse ? truth_word(item, choice) : std::string_view(item.choices[choice].text);
}

std::string question(const ExamItem& item) {
  std::string html = text_block(item.stem);
  if (item.choices.empty() || item.kind == ItemKind::kShortAnswer || item.kind == ItemKind::kNumeric) {
    return html + "<div class=\"line\"></div>";
  }
  html += "<ol>";
  for (std::size_t i = 0; i < item.choices.size(); ++i) {
    html += fmt::format("<li><span>{}.</span>{}</li>", choice_letter(i), text_block(words_of(item, i)));
  }
  return html + "</ol>";
}

std::string solution(const ExamItem& item) {
  const bool has_letters = item.kind == ItemKind::kChoice || item.kind == ItemKind::kTrueFalse;
  std::string html;
  if (has_letters) {
    html += fmt::format("<div class=\"answer\">{}. <bdi>{}</bdi></div>", choice_letter(item.key),
                        markup(one_line(words_of(item, item.key))));
  } else {
    html += text_block(right_answer(item), "text answer");
  }
  if (!shown_text(item.explanation).empty()) html += text_block(item.explanation, "text why");
  std::string reasons;
  for (std::size_t i = 0; has_letters && i < item.choices.size(); ++i) {
    if (shown_text(item.choices[i].explanation).empty()) continue;
    reasons += fmt::format("<li><span>{}.</span>{}</li>", choice_letter(i), text_block(item.choices[i].explanation));
  }
  if (!reasons.empty()) html += "<div class=\"why\"><ol>" + reasons + "</ol></div>";
  std::string about = name_of(item.difficulty);
  if (*name_of(item.bloom) != 0) about += (about.empty() ? "" : " · ") + std::string(name_of(item.bloom));
  if (!item.cited.path.empty()) {
    about += fmt::format("{}{}, chunk {}", about.empty() ? "" : " · ", one_line(item.cited.path), item.cited.number);
  }
  if (!about.empty()) html += "<div class=\"about\">" + markup(about) + "</div>";
  return html;
}

std::string head(const Exam& exam, const std::string& title) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n"
      "<h1 dir=\"auto\">{}</h1>\n<div class=\"count\">{} problems</div>\n"
      "<input class=\"choose\" type=\"radio\" name=\"view\" id=\"questions\" checked>"
      "<input class=\"choose\" type=\"radio\" name=\"view\" id=\"solutions\">"
      "<input class=\"choose\" type=\"radio\" name=\"view\" id=\"both\">\n"
      "<div class=\"view\"><label for=\"questions\">Questions</label><label for=\"solutions\">Solutions</label>"
      "<label for=\"both\">Both</label></div>\n<main>\n",
      markup(exam.language), title, kStyle, title, exam.items.size());
}

}  // namespace

std::vector<ExamFile> exam_html(const Exam& exam) {
  const std::string title = markup(one_line(exam.title).empty() ? "Exam" : one_line(exam.title));
  std::string html = head(exam, title);
  const ExamItem* last = nullptr;
  std::size_t number = 0;
  for (const ExamItem& item : exam.items) {
    const bool is_new = last == nullptr || last->objective_number != item.objective_number ||
                        last->objective_text != item.objective_text;
    if (is_new && !(item.objective_number + item.objective_text).empty()) {
      html += fmt::format("<h2>{} <bdi>{}</bdi></h2>\n", markup(item.objective_number),
                          markup(one_line(item.objective_text)));
    }
    last = &item;
    html += fmt::format(
        "<section class=\"item\"><div class=\"number\">{}.</div><div>"
        "<div class=\"question\">{}</div>\n<div class=\"solution\">{}</div></div></section>\n",
        ++number, question(item), solution(item));
  }
  return {{".html", html + "</main>\n</body>\n</html>\n"}};
}

}  // namespace magister
