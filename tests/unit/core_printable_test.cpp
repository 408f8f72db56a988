#include "core/printable.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "plain words, C:\\names and 'quotes'", "Zürich 東京 🙂 e\u0301"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_message(text), text);
  }
}

TEST(Printable, EscapesTerminalControlCharacters) {
  EXPECT_EQ(printable("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f\u009b2J"), "\\x7f\\u{009B}2J");
}

TEST(Printable, EscapesCharactersThatHideOrTurnOthers) {
  EXPECT_EQ(printable("\u202Egpj.exe\u2069\uFEFF\u200B"), "\\u{202E}gpj.exe\\u{2069}\\u{FEFF}\\u{200B}");
  EXPECT_EQ(printable("a\U000E0041"), "a\\u{E0041}");
}

TEST(Printable, EscapesEachByteThatIsNoText) {
  EXPECT_EQ(printable("\xff\xfe"
                      "A"),
            "\\xff\\xfeA");
  EXPECT_EQ(printable("\xe6\x9d"), "\\xe6\\x9d");                    // cut off
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(printable("\x9bx"), "\\x9bx");                           // a control of ISO 8859 by itself
}

TEST(Printable, CutsAfterACharacterAndSaysTheLength) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef... (7 bytes in all)");
  EXPECT_EQ(printable("aé東", 4), "aé... (6 bytes in all)");
  EXPECT_EQ(printable(std::string(1 << 20, '\x01'), 2), "\\x01\\x01... (1048576 bytes in all)");
}

TEST(Printable, AMessageKeepsItsLines) {
  EXPECT_EQ(printable_message("a:\n  b\tc\r\x1b[2J\xff"), "a:\n  b\tc\\x0d\\x1b[2J\\xff");
  const std::string long_text(5000, 'x');
  EXPECT_EQ(printable_message(long_text), long_text);
}

}  // namespace
}  // namespace trifold
