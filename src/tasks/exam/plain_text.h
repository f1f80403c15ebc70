// Foreign text as paragraphs. Local.
#pragma once

#include <string>
#include <string_view>

namespace magister {

// Paragraphs separated by one empty line: no byte order mark, line ends as \n, form feeds as ends of paragraphs, no
// white space at the ends of lines and of the text, no other control characters but tabs.
std::string paragraphs_of(std::string_view text);

}  // namespace magister
