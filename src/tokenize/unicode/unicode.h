// Unicode functions for tokenizers and readers of text. Text is UTF-8 in std::string.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "files/mapped_file.h"

namespace trifold {

// The position of the first byte that does not belong to a character; nullopt if all of `text` is UTF-8 (no surrogates,
// no overlong forms, nothing beyond U+10FFFF).
std::optional<size_t> invalid_utf8(std::string_view text);

// BadInput, with advice, if `text` is not UTF-8; `place` returns the location of a byte for the message.
void expect_utf8(std::string_view text, FunctionRef<std::string(size_t)> place);
// BadInput if a file is not UTF-8; the message names the line. Does not keep the file's pages in memory.
void expect_utf8_of_file(const MappedFile& file);

// `text` with U+FFFD for every maximal invalid run of bytes that could have begun a character, as the Unicode standard
// recommends (section 3.9, "substitution of maximal subparts").
std::string replace_invalid_utf8(std::string_view text);

// The character at byte `at` of valid UTF-8, which must not be the end; moves `at` past it.
char32_t next_character(std::string_view text, size_t& at);
// The character that ends before byte `at`, which must not be 0.
char32_t character_before(std::string_view text, size_t at);
void append_character(std::string& text, char32_t character);

// Properties, normal forms and lower case as in Hugging Face's `tokenizers` (tokenize/unicode/unicode_tables.h).
bool is_white_space(char32_t c);  // the property White_Space
// The size in bytes of the white space at the beginning of a text, and of the text without that at its end.
size_t white_space_at_start(std::string_view text);
size_t size_without_white_space_at_end(std::string_view text);
bool is_number(char32_t c);           // decimal digits, letter-like numbers and others: categories N*
bool is_word_character(char32_t c);   // \w: letters, marks, decimal digits, connectors, joiners
bool is_mark(char32_t c);             // categories M*
bool is_nonspacing_mark(char32_t c);  // category Mn
// In ASCII everything except letters, digits, spaces and controls; beyond ASCII categories P*.
bool is_punctuation_of_bert(char32_t c);
// Controls, formats, private use (categories Cc, Cf, Co) and U+FFFD, without tab and line ends.
bool is_removed_by_bert(char32_t c);
bool is_ideograph_of_bert(char32_t c);  // the blocks of Chinese characters that BERT sets apart by spaces

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };
std::string normalized(std::string_view text, NormalForm form);  // tokenize/unicode/normal_form.cpp
// Ignores context: a final sigma is like any other.
std::string lower_case(std::string_view text);

}  // namespace trifold
