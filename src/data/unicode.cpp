#include "data/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace trifold {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The character at `at`, or a negative number, `at` then being behind the bytes that could have begun one.
UChar32 decode(std::string_view text, size_t& at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto size = static_cast<int64_t>(text.size());
  auto i = static_cast<int64_t>(at);
  UChar32 c = 0;
  U8_NEXT(bytes, i, size, c);
  at = static_cast<size_t>(i);
  return c;
}

int version_of(char32_t c) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0];
}

// The category of a character in Unicode 8.0: later versions have changed that of six.
int8_t old_category(char32_t c) {
  const int version = version_of(c);
  if (version == 0 || version > 8) return U_UNASSIGNED;
  switch (c) {
    case 0x166D:
    case 0x111C9:
      return U_OTHER_PUNCTUATION;
    case 0x1734:
      return U_NON_SPACING_MARK;
    case 0x1885:
    case 0x1886:
      return U_OTHER_LETTER;
    case 0xA9BD:
      return U_COMBINING_SPACING_MARK;
    default:
      return u_charType(static_cast<UChar32>(c));
  }
}

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::Nfc:
      found = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::Nfd:
      found = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::Nfkc:
      found = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::Nfkd:
      found = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  check(U_SUCCESS(status) && found != nullptr, "ICU has no data for normalisation: {}", u_errorName(status));
  return *found;
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

void expect_utf8_of_file(std::string_view text, const std::string& path) {
  expect_utf8(text, [&](size_t at) {
    return fmt::format("{}:{}", path,
                       1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n'));
  });
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
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}

bool is_number(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0; }

bool is_mark(char32_t c) {
  if (c < 0x300 || c == 0x111C9) return false;  // punctuation until Unicode 10
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // letters since Unicode 12
  return version_of(c) <= 9 && (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0;
}

bool is_word_character(char32_t c) {
  return u_isdigit(static_cast<UChar32>(c)) != 0 ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_ALPHABETIC) != 0 ||
         (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_M_MASK | U_GC_PC_MASK)) != 0 || c == 0x200C ||
         c == 0x200D;
}

bool is_punctuation_of_bert(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  return (U_MASK(old_category(c)) & U_GC_P_MASK) != 0;
}

bool is_other_of_bert(char32_t c) {
  if (c < 0x80) return c < 0x20 || c == 0x7F;
  return (U_MASK(old_category(c)) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_nonspacing_mark(char32_t c) { return c >= 0x300 && old_category(c) == U_NON_SPACING_MARK; }

bool is_ideograph_of_bert(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string normalized(std::string_view text, NormalForm form) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  UErrorCode status = U_ZERO_ERROR;
  normalizer_of(form).normalizeUTF8(0, {text.data(), static_cast<int32_t>(text.size())}, sink, nullptr,
                                    status);
  check(U_SUCCESS(status), "ICU could not normalise a text of {} bytes: {}", text.size(),
        u_errorName(status));
  return out;
}

std::string lower_case(std::string_view text) {
  static const char32_t kDottedCapitalI = 0x130;  // the only character whose small form has two
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    append_character(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
    if (c == kDottedCapitalI) append_character(out, 0x307);
  }
  return out;
}

}  // namespace trifold
