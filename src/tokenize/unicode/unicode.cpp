#include "tokenize/unicode/unicode.h"

#include <unicode/utf8.h>  // macros only, none of the library's data

#include <algorithm>
#include <array>

#include "core/error.h"
#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The character at `at`, or a negative number, with `at` after the bytes that could have begun one.
UChar32 decode(std::string_view text, size_t& at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto size = static_cast<int64_t>(text.size());
  auto i = static_cast<int64_t>(at);
  UChar32 c = 0;
  U8_NEXT(bytes, i, size, c);
  at = static_cast<size_t>(i);
  return c;
}

}  // namespace

std::optional<size_t> invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t start = at;
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else if (decode(text, at) < 0) {
      return start;
    }
  }
  return std::nullopt;
}

void expect_utf8(std::string_view text, FunctionRef<std::string(size_t)> place) {
  if (const auto bad = invalid_utf8(text))
    bad_input(
        "{}: a byte of value {} is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8, for example), "
        "leave it out, or give --tokenizer-type byte",
        place(*bad), static_cast<unsigned char>(text[*bad]));
}

void expect_utf8_of_file(const MappedFile& file) {
  constexpr size_t kPiece = size_t{1} << 24;
  constexpr size_t kLongestCharacter = 4;
  int64_t lines = 0;
  int64_t begin = 0;
  for (std::string_view rest = file.text(); !rest.empty();) {
    size_t size = std::min(rest.size(), kPiece);
    if (size < rest.size())  // not in the middle of a character
      for (size_t back = 0; back < kLongestCharacter && U8_IS_TRAIL(rest[size]); ++back) --size;
    const std::string_view piece = rest.substr(0, size);
    expect_utf8(piece, [&](size_t at) {
      return fmt::format(
          "{}:{}", file.path(),
          1 + lines + std::count(piece.begin(), piece.begin() + static_cast<int64_t>(at), '\n'));
    });
    lines += std::count(piece.begin(), piece.end(), '\n');
    file.release(begin, begin + std::ssize(piece));
    begin += std::ssize(piece);
    rest.remove_prefix(size);
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const UChar32 c = decode(text, at);
    append_character(out, c < 0 ? kReplacement : static_cast<char32_t>(c));
  }
  return out;
}

char32_t next_character(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const UChar32 c = decode(text, at);
  check(c >= 0, "text that is not UTF-8 was to be tokenized");
  return static_cast<char32_t>(c);
}

char32_t character_before(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U);
  return next_character(text, at);
}

void append_character(std::string& text, char32_t character) {
  std::array<uint8_t, 4> bytes{};
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes.data(), size, static_cast<uint32_t>(character));
  text.append(reinterpret_cast<const char*>(bytes.data()), size);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return UnicodeTables::get().white_space.contains(c);
}

size_t white_space_at_start(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    if (!is_white_space(next_character(text, at))) break;
    end = at;
  }
  return end;
}

size_t size_without_white_space_at_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_white_space(character_before(text, end))) {
    do {
      --end;
    } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
  }
  return end;
}

bool is_number(char32_t c) { return UnicodeTables::get().numbers.contains(c); }

bool is_word_character(char32_t c) { return UnicodeTables::get().words.contains(c); }

bool is_mark(char32_t c) { return c >= 0x300 && UnicodeTables::get().marks.contains(c); }

bool is_punctuation_of_bert(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  return UnicodeTables::get().punctuation_of_bert.contains(c);
}

bool is_removed_by_bert(char32_t c) { return UnicodeTables::get().removed_by_bert.contains(c); }

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && UnicodeTables::get().nonspacing_marks.contains(c);
}

bool is_ideograph_of_bert(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string lower_case(std::string_view text) {
  const auto& small_letters = UnicodeTables::get().small_letters;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 0x20 : c));
      continue;
    }
    const auto found = small_letters.find(c);
    if (found == small_letters.end())
      append_character(out, c);
    else
      for (const char32_t small : found->second) append_character(out, small);
  }
  return out;
}

}  // namespace trifold
