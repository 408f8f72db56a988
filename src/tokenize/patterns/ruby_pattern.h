// Translates regular expressions of a Hugging Face tokenizer.json for ICU. Character classes and case folding are
// spelled out as sets (tokenize/unicode/unicode_tables.h), so nothing depends on the Unicode version of the host's ICU.
//
// Hugging Face's library matches with Oniguruma in its Ruby dialect, which resembles ICU's but differs. In Ruby's
// dialect '^' and '$' match at every line end, which is only a line feed; "(?m)" lets '.' match a line end; "(?i)"
// without a colon holds for the rest of its group, alternatives included; "{2,3}+" is a quantifier of a quantifier and
// not possessive (the dialect has "?+", "*+" and "++"), as is "{2}?"; "{,2}" is "{0,2}"; \h is a hexadecimal digit and
// \v a vertical tab; \w has no joiners, and \b is the border between \w and \W; "&&" in a set binds weakest. Source: K.
// Kosako, Oniguruma's doc/RE, ONIG_SYNTAX_RUBY.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// Translates `pattern` (UTF-8) so that ICU, with UREGEX_MULTILINE and UREGEX_UNIX_LINES, finds the same matches as the
// library. Groups do not capture. BadInput, naming the construct and its position, for constructs without a counterpart
// (back references, \G, \K, \X, "(?x)", absent groups, conditions, calls, blocks of Unicode) and for invalid patterns.
std::string icu_pattern_of_ruby(std::string_view pattern);

// Translates patterns of Rust's crates regex and fancy-regex, which tiktoken uses. There '^' and '$' match only at the
// beginning and the end of the text, "{2,3}+" is possessive and "{2}?" lazy, and "(?i)" compares characters one by one.
// BadInput also for "(?m)", "[:alpha:]", "--" in a set, "{,2}", \R, \Z and \h, which Rust does not have or reads in
// another way.
std::string icu_pattern_of_rust(std::string_view pattern);

}  // namespace trifold
