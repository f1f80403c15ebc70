// Shared by the exports of exams: texts as every format can hold them, and what XML and HTML need. Local.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/exam/exports.h"

namespace magister {

// Line ends as \n; control characters but tabs and line ends, and what is not UTF-8 or not allowed in XML, become
// U+FFFD; no white space at the ends.
std::string shown_text(std::string_view text);
// shown_text() in one line: line ends and tabs become spaces.
std::string one_line(std::string_view text);

// & < > " ' as references, for XML and HTML, in text and in attributes.
std::string markup(std::string_view text);
// The same for content in which a line end is shown: it becomes `line_break`, for example "<br/>".
std::string markup_lines(std::string_view text, std::string_view line_break);

// An accepted answer for Moodle, where * in it stands for any text.
std::string moodle_short_answer(std::string_view text);

// Faults that no format can hold: an empty stem or choice, a key that is none of the choices ("item <id>: ...").
std::vector<std::string> refused_everywhere(const Exam& exam);

// The two words of a statement's choices, "True" and "False" unless the item has its own.
std::string_view truth_word(const ExamItem& item, std::size_t index);

}  // namespace magister
