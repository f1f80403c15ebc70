// Foreign text on one line of a terminal, and the nearest name.
#include "magister/core/error.h"

#include <gtest/gtest.h>

#include "magister/core/checked.h"
#include "magister/core/utf8.h"

namespace magister {
namespace error_test {

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain é 日本 😀"), "plain é 日本 😀");
  EXPECT_EQ(printable("a\nb\x1B[31m\x7F"), "a\\x0Ab\\x1B[31m\\x7F");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xC2\\x9B31m");
  EXPECT_EQ(printable("\xFF\xC0\xAF"), "\\xFF\\xC0\\xAF");
  EXPECT_EQ(printable("cut\xE6\x97"), "cut\\xE6\\x97");
  EXPECT_EQ(printable(std::string(300, 'a')), std::string(200, 'a') + "...");
  EXPECT_EQ(printable("日本", 5), "日...");  // never inside a code point
}

TEST(Utf8, FollowsTheTableOfTheStandard) {
  const auto valid = [](std::string_view text) { return find_invalid_utf8(text) == text.size(); };
  EXPECT_TRUE(valid("") && valid("\x7F") && valid("\xC2\x80") && valid("\xE0\xA0\x80") && valid("\xED\x9F\xBF"));
  EXPECT_TRUE(valid("\xEE\x80\x80") && valid("\xF0\x90\x80\x80") && valid("\xF4\x8F\xBF\xBF"));
  for (const std::string_view bad : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                     "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE6\x97", "\xC3(", "\xFE"}) {
    EXPECT_EQ(find_invalid_utf8(bad), 0u) << printable(bad);
  }
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2u);
}

// The count of all well-formed sequences is known: every code point but the surrogates.
TEST(Utf8, AcceptsEveryCodePointOnce) {
  std::size_t count = 0;
  for (std::uint32_t c = 0; c < 0x120000; ++c) {
    std::string text;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else if (c < 0x800) {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    count += utf8_sequence_length(text) == text.size();
  }
  EXPECT_EQ(count, 0x110000u - 0x800u);
}

TEST(NearestName, FindsSlips) {
  const std::vector<std::string> names = {"seed", "name", "model", "tasks", "output", "layout", "id"};
  EXPECT_EQ(nearest_name("sed", names), "seed");
  EXPECT_EQ(nearest_name("nmae", names), "name");
  EXPECT_EQ(nearest_name("modle", names), "model");
  EXPECT_EQ(nearest_name("outputs", names), "output");
  EXPECT_EQ(nearest_name("frobnicate", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("q", names), "");
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'a'), names), "");
}

TEST(TerminalSafe, EscapesControlCharactersAndKeepsLines) {
  EXPECT_EQ(terminal_safe("a\x1B[31m\r\x07\x7F b"), "a\\x1B[31m\\x0D\\x07\\x7F b");
  EXPECT_EQ(terminal_safe("two\nlines\tand a tab"), "two\nlines\tand a tab");
  EXPECT_EQ(terminal_safe("\xC2\x9B"
                          "31m \xFF \xC3\xA9"),
            "\\xC2\\x9B31m \\xFF \xC3\xA9");
  EXPECT_EQ(terminal_safe(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Fail, CarriesCodeAndMessage) {
  try {
    fail(ExitCode::kData, "{} is bad (why); fix it", 5);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_STREQ(error.what(), "5 is bad (why); fix it");
  }
}

TEST(Checked, RefusesWhatDoesNotFit) {
  EXPECT_EQ(checked_multiply(1ull << 32, 1ull << 31, "x"), 1ull << 63);
  EXPECT_THROW(checked_multiply(1ull << 32, 1ull << 32, "x"), Error);
  EXPECT_EQ(checked_add(~0ull - 1, 1, "x"), ~0ull);
  EXPECT_THROW(checked_add(~0ull, 1, "x"), Error);
}

}  // namespace error_test
}  // namespace magister
