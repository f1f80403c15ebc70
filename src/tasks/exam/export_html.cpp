// One page without scripts and without other files. Four buttons choose what it shows and prints: the questions, the
// questions with the key on a page of its own, the solutions, or each question with its solution. Every length of the
// layout follows the direction of the item's text, so an item that is written from right to left is laid out so, too.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "magister/core/utf8.h"
#include "tasks/exam/export_formats.h"
#include "tasks/exam/export_text.h"

namespace magister {
namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #5a5a5a; --rule: #b9b9b9; --paper: #fff; --accent: #1d4e89; --on-accent: #fff; --right: #2e7d32; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e7e5e1; --soft: #a9a6a0; --rule: #57544f; --paper: #1b1b1d; --accent: #8ab4e8; --on-accent: #12151a; --right: #7cc47f; } }
* { box-sizing: border-box; }
body { font: 12pt/1.5 "Source Serif 4", Charter, "Bitstream Charter", Georgia, "Noto Serif", "DejaVu Serif", serif; color: var(--ink); background: var(--paper); max-width: 46rem; margin: 2rem auto; padding: 0 1.5rem; overflow-wrap: anywhere; }
header { border-block-end: 2px solid var(--ink); margin-block-end: 1.6rem; padding-block-end: .8rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .2rem; }
h2 { font: 600 .95rem/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--soft); border-block-end: 1px solid var(--rule); padding-block-end: .25rem; margin: 2rem 0 1.1rem; break-after: avoid; }
.count, .view label, .about, .blanks { font: .85rem/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--soft); }
.blanks { display: grid; grid-template-columns: 3fr 1.4fr 1.4fr 1fr; gap: 1rem; margin-block-start: 1.4rem; }
.blanks span { border-block-end: 1px solid var(--rule); padding-block-end: .1rem; }
.view { margin: 1rem 0 1.6rem; display: flex; flex-wrap: wrap; gap: .4rem; }
.view label { border: 1px solid var(--rule); border-radius: .3rem; padding: .3rem .8rem; cursor: pointer; }
input.choose { position: absolute; opacity: 0; }
#questions:checked ~ .view label[for=questions], #with-key:checked ~ .view label[for=with-key], #solutions:checked ~ .view label[for=solutions], #both:checked ~ .view label[for=both] { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
input.choose:focus-visible ~ .view { outline: 2px solid var(--accent); outline-offset: .2rem; }
.item { break-inside: avoid; margin: 0 0 1.7rem; display: grid; grid-template-columns: 2.4rem minmax(0, 1fr); }
.number { font-weight: bold; font-variant-numeric: tabular-nums; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; unicode-bidi: isolate; text-align: start; }
ol { list-style: none; margin: .6rem 0 0; padding: 0; }
li { display: grid; grid-template-columns: 2.2rem minmax(0, 1fr); margin: .35rem 0; align-items: start; break-inside: avoid; }
.letter { display: inline-grid; place-items: center; width: 1.5em; height: 1.5em; border: 1px solid currentColor; border-radius: 50%; font: .8rem/1 system-ui, "DejaVu Sans", sans-serif; margin-block-start: .02em; }
.line { border-block-end: 1px solid var(--soft); height: 2.4rem; width: 75%; }
.line.number-line { width: 35%; }
.solution { border-inline-start: 3px solid var(--right); padding-inline-start: .9rem; margin-block-start: .8rem; }
.answer { font-weight: bold; }
.why { font-size: .94em; margin-block-start: .3rem; }
.why ol { margin: 0; }
.about { margin-block-start: .3rem; }
.key ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .2rem 1.2rem; }
.key li { grid-template-columns: 2.4rem minmax(0, 1fr); margin: 0; border-block-end: 1px dotted var(--rule); }
.key .n { color: var(--soft); font-variant-numeric: tabular-nums; }
.key .wide { grid-column: span 2; }
#questions:checked ~ main .solution, #with-key:checked ~ main .solution, #solutions:checked ~ main .question, #solutions:checked ~ header .blanks, #both:checked ~ header .blanks { display: none; }
#questions:checked ~ main .key, #solutions:checked ~ main .key, #both:checked ~ main .key { display: none; }
#solutions:checked ~ main .solution { margin-block-start: 0; }
@media print {
  body { font-size: 11pt; margin: 0; max-width: none; padding: 0; orphans: 3; widows: 3; }
  .view, input.choose { display: none; }
  .key { break-before: page; }
  .line { height: 2.8rem; }
  @page { margin: 18mm 18mm 20mm; @bottom-center { content: counter(page) " / " counter(pages); font: 9pt sans-serif; color: #5a5a5a; } }
}
)css";

struct View {
  std::string_view id, label;
};
constexpr std::array<View, 4> kViews = {{{"questions", "Questions"},
                                         {"with-key", "Questions, then the key"},
                                         {"solutions", "Solutions"},
                                         {"both", "Questions with solutions"}}};

char32_t code_point(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  char32_t value = bytes.size() == 1 ? first : first & (0x7Fu >> bytes.size());
  for (const char c : bytes.substr(1)) value = value << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return value;
}

// The direction of the first letter: that of Hebrew, Arabic and the other scripts of these blocks is from right to
// left. Signs and digits have none.
bool reads_right_to_left(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = std::max<std::size_t>(1, utf8_sequence_length(text));
    const char32_t point = code_point(text.substr(0, size));
    if ((point >= 0x591 && point <= 0x8FF && (point < 0x660 || point > 0x669)) ||
        (point >= 0xFB1D && point <= 0xFDFF) || (point >= 0xFE70 && point <= 0xFEFE) ||
        (point >= 0x10800 && point <= 0x10FFF) || (point >= 0x1E800 && point <= 0x1EFFF))
      return true;
    const bool is_sign = point < 'A' || (point > 'Z' && point < 'a') || (point > 'z' && point < 0xC0) ||
                         point == 0xD7 || point == 0xF7 || (point >= 0x300 && point < 0x370) ||
                         (point >= 0x660 && point <= 0x669) || (point >= 0x2000 && point < 0x2C00) ||
                         (point >= 0xFE00 && point <= 0xFE0F);
    if (!is_sign) return false;
    text.remove_prefix(size);
  }
  return false;
}

// A block with a direction of its own, in which all characters are shown as they are.
std::string text_block(std::string_view text, const char* classes = "text") {
  return fmt::format("<div class=\"{}\" dir=\"auto\">{}</div>", classes, markup(shown_text(text)));
}

std::string choice_line(std::size_t choice, std::string_view text) {
  return fmt::format("<li><span><span class=\"letter\">{}</span></span>{}</li>", choice_letter(choice),
                     text_block(text));
}

bool has_letters(const ExamItem& item) { return item.kind == ItemKind::kChoice || item.kind == ItemKind::kTrueFalse; }

std::string_view words_of(const ExamItem& item, std::size_t choice) {
  return item.kind == ItemKind::kTrueFalse ? truth_word(item, choice) : std::string_view(item.choices[choice].text);
}

std::string question(const ExamItem& item) {
  std::string html = text_block(item.stem);
  if (!has_letters(item)) {
    const bool is_number = item.kind == ItemKind::kNumeric;
    return html + (is_number ? "<div class=\"line number-line\"></div>" : "<div class=\"line\"></div>");
  }
  html += "<ol>";
  for (std::size_t i = 0; i < item.choices.size(); ++i) html += choice_line(i, words_of(item, i));
  return html + "</ol>";
}

std::string solution(const ExamItem& item) {
  std::string html;
  if (has_letters(item)) {
    html += fmt::format("<div class=\"answer\">{}. <bdi>{}</bdi></div>", choice_letter(item.key),
                        markup(one_line(words_of(item, item.key))));
  } else {
    html += text_block(right_answer(item), "text answer");
  }
  if (!shown_text(item.explanation).empty()) html += text_block(item.explanation, "text why");
  std::string reasons;
  for (std::size_t i = 0; has_letters(item) && i < item.choices.size(); ++i) {
    if (shown_text(item.choices[i].explanation).empty()) continue;
    reasons += choice_line(i, item.choices[i].explanation);
  }
  if (!reasons.empty()) html += "<div class=\"why\"><ol>" + reasons + "</ol></div>";
  std::string about = name_of(item.difficulty);
  if (*name_of(item.bloom) != 0) about += (about.empty() ? "" : " · ") + std::string(name_of(item.bloom));
  if (!item.cited.path.empty()) {
    about +=
        fmt::format("{}{}, passage {}", about.empty() ? "" : " · ", one_line(item.cited.path), item.cited.number + 1);
  }
  if (!about.empty()) html += "<div class=\"about\">" + markup(about) + "</div>";
  return html;
}

// The right answers alone, to mark with.
std::string key_of(const Exam& exam) {
  std::string html = "<section class=\"key\"><h2>Key</h2><ol>";
  std::size_t number = 0;
  for (const ExamItem& item : exam.items) {
    const std::string answer =
        has_letters(item) ? std::string(1, choice_letter(item.key)) : one_line(right_answer(item));
    constexpr std::size_t kNarrow = 12;  // bytes
    html += fmt::format("<li{}><span class=\"n\">{}</span><bdi>{}</bdi></li>",
                        answer.size() > kNarrow ? " class=\"wide\"" : "", ++number, markup(answer));
  }
  return html + "</ol></section>\n";
}

std::string head(const Exam& exam, const std::string& title) {
  std::string inputs, labels;
  for (const auto& [id, label] : kViews) {
    inputs += fmt::format("<input class=\"choose\" type=\"radio\" name=\"view\" id=\"{}\"{}>", id,
                          inputs.empty() ? " checked" : "");
    labels += fmt::format("<label for=\"{}\">{}</label>", id, label);
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n{}\n<div class=\"view\">{}</div>\n"
      "<header><h1 dir=\"auto\">{}</h1>\n<div class=\"count\">{}</div>\n"
      "<div class=\"blanks\"><span>Name</span><span>Class</span><span>Date</span><span>Points</span></div></header>\n"
      "<main>\n",
      markup(exam.language), title, kStyle, inputs, labels, title,
      exam.items.size() == 1 ? "1 question" : fmt::format("{} questions", exam.items.size()));
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
      html +=
          fmt::format("<h2{}>{} <bdi>{}</bdi></h2>\n", reads_right_to_left(item.objective_text) ? " dir=\"rtl\"" : "",
                      markup(item.objective_number), markup(one_line(item.objective_text)));
    }
    last = &item;
    html += fmt::format(
        "<section class=\"item\" dir=\"{}\"><div class=\"number\">{}.</div><div>"
        "<div class=\"question\">{}</div>\n<div class=\"solution\">{}</div></div></section>\n",
        reads_right_to_left(item.stem) ? "rtl" : "ltr", ++number, question(item), solution(item));
  }
  return {{".html", html + key_of(exam) + "</main>\n</body>\n</html>\n"}};
}

}  // namespace magister
