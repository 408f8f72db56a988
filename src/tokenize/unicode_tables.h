// The character properties that Hugging Face's `tokenizers` 0.23.3 uses. Its parts have the tables of
// different Unicode versions (docs/unicode.md), not those of the host's libraries: the tables are part of the
// program, so that token ids do not depend on where it was built.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenize/code_points.h"

namespace trifold {

// Each is made when it is first asked for, and stays.
struct UnicodeTables {
  CodePointSet white_space, numbers, words;                             // Rust
  CodePointSet punctuation_of_bert, removed_by_bert, nonspacing_marks;  // unicode_categories
  CodePointSet marks;                                                   // unicode-normalization-alignments
  std::map<char32_t, std::u32string> small_letters;

  static const UnicodeTables& get();
};

// Of normal forms; Hangul is not in them, for it is computed.
struct NormalizationTables {
  std::map<char32_t, std::u32string> canonical;   // decomposed wholly
  std::map<char32_t, std::u32string> compatible;  // likewise, where that differs
  std::map<char32_t, uint8_t> combining_classes;  // that are not 0
  std::map<std::pair<char32_t, char32_t>, char32_t> compositions;

  static const NormalizationTables& get();
};

// The set of a class of Oniguruma's patterns: a property by its name without case, '_', '-' and ' ';
// "[:alpha:]"; "\\w", or "[\\w]" if it differs inside a set. Null for an unknown name.
const CodePointSet* class_of_patterns(std::string_view name);

// What is the same without case: single characters, and sequences of two or three.
struct FoldClass {
  std::u32string characters;
  std::u32string sequence;  // of characters without case; empty for most classes
};
const std::vector<FoldClass>& fold_classes();

}  // namespace trifold
