#include "base/text/printable.h"

#include <gtest/gtest.h>

namespace gpumem {
namespace {

TEST(Printable, IsTextOfAnyLanguage) {
  for (const char* text :
       {"", "training run 3", "modèle", "модель", "模型", "\U0001f40d", "\u00a0", "\U0010ffff"})
    EXPECT_TRUE(is_printable(text)) << text;
}

TEST(Escaped, NamesThatLookAlikeDiffer) {
  EXPECT_EQ(escape_non_ascii("weights-v1"), "weights-v1");
  EXPECT_EQ(escape_non_ascii("weights\u00ad-v1\u3164"), "weights\\u{AD}-v1\\u{3164}");
  EXPECT_EQ(escape_non_ascii("w\u0435ights\U000E0041"), "w\\u{435}ights\\u{E0041}") << "a letter, and a tag";
  EXPECT_EQ(escape_non_ascii("weights\\u{AD}"), "weights\\\\u{AD}");
  EXPECT_EQ(escape_non_ascii("\x1b\xff"
                             "a\xc2"),
            "??a?");
}

TEST(Printable, IsNoControlCharacter) {
  for (const std::string& text :
       {std::string("\0", 1), std::string("a\nb"), std::string("\x1b[2J"), std::string("\x7f"),
        std::string("\u0080"), std::string("\u009b"), std::string("\u009f")})
    EXPECT_FALSE(is_printable(text));
}

TEST(Printable, IsNoCharacterThatHidesOrTurnsOthers) {
  for (const char* text : {"\u202e", "weights\u202e1v", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f",
                           "\u061c", "\u200b", "\u2028", "\u2029", "\u2060", "\ufeff", "\ufff9", "\u180e"})
    EXPECT_FALSE(is_printable(text)) << text;
  for (const char* text : {"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u2027", "\u202f", "\u05d0"})
    EXPECT_TRUE(is_printable(text)) << text;
}

// A message of Protocol Buffers with one such text is not read at all.
TEST(Printable, IsUtf8) {
  for (const char* text :
       {"\xff", "a\x80", "\xc3", "\xc3(", "\xe2\x82", "\xf0\x9f\x90", "\xf8\x88\x80\x80\x80"})
    EXPECT_FALSE(is_printable(text)) << "cut off, or of no such length";
  for (const char* text : {"\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf"})
    EXPECT_FALSE(is_printable(text)) << "longer than need be";
  for (const char* text : {"\xed\xa0\x80", "\xed\xbf\xbf"})
    EXPECT_FALSE(is_printable(text)) << "half of a pair";
  for (const char* text : {"\xf4\x90\x80\x80", "\xf7\xbf\xbf\xbf"})
    EXPECT_FALSE(is_printable(text)) << "beyond Unicode";
}

}  // namespace
}  // namespace gpumem
