// Python's str on UTF-8: positions count code points, case follows Unicode's full mappings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace magister::jinja {

bool is_python_space(char32_t c);  // str.isspace(), also \s of the template's own syntax
bool is_ascii(std::string_view text);
std::size_t count_points(std::string_view text);
std::vector<std::string_view> points_of(std::string_view text);       // one view per code point
std::size_t byte_of_point(std::string_view text, std::size_t point);  // clamped to the end

enum class Side { kBoth, kLeft, kRight };
// Strips the code points of `set`, or white space when set is null.
std::string_view strip(std::string_view text, const std::string* set, Side side);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title()
std::string swap_case(std::string_view text);
std::string title_filter(std::string_view text);  // the filter: words begin after white space, - ( { [ <
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// As str.split and str.rsplit; separator null: runs of white space. limit < 0: no limit.
std::vector<std::string_view> split(std::string_view text, const std::string* separator, std::int64_t limit);
std::vector<std::string_view> split_from_right(std::string_view text, const std::string* separator, std::int64_t limit);
std::size_t find(std::string_view text, std::string_view part, std::size_t from = 0);  // linear time; npos if absent
std::size_t count_parts(std::string_view text, std::string_view part);
std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t limit);
std::string escape_html(std::string_view text);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
std::string repr_of_text(std::string_view text);
std::string repr_of_real(double number);
}  // namespace magister::jinja
