// Regular expressions of a Hugging Face tokenizer.json, written for ICU. Classes of characters and case are
// written out as sets (data/unicode_tables.h): nothing depends on the Unicode version of the host's ICU.
//
// The library that is to be equalled matches with Oniguruma in the dialect of Ruby; the dialect of ICU looks
// the same and is another. Here '^' and '$' are at every line end, which is \n alone; "(?m)" lets '.' match a
// line end; "(?i)" without a colon holds for what is left of its group, alternatives included; "{2,3}+" is a
// quantifier of a quantifier and not possessive (the dialect has "?+", "*+" and "++"), as is "{2}?"; "{,2}"
// is "{0,2}"; \h is a hexadecimal digit and \v a vertical tab; \w has no joiners, and \b lies between \w and
// what is not \w; "&&" in a set binds weakest. Facts: K. Kosako, Oniguruma's doc/RE, ONIG_SYNTAX_RUBY.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// What ICU finds with the result, compiled with UREGEX_MULTILINE and UREGEX_UNIX_LINES, is what the library
// finds with `pattern` (UTF-8). Groups capture nothing. BadInput, naming the construct and its place, for
// what has no counterpart (back references, \G, \K, \X, "(?x)", absent groups, conditions, calls, blocks of
// Unicode) and for what is not a pattern.
std::string icu_pattern_of_ruby(std::string_view pattern);

}  // namespace trifold
