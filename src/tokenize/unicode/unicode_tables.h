// The character properties that Hugging Face's `tokenizers` 0.23.3 uses, whose parts use different Unicode versions
// (docs/unicode.md). The tables are part of the program and not taken from the host's libraries, so token ids do not
// depend on the host on which it was built.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenize/unicode/code_points.h"

namespace trifold {

// Built on first use, never freed.
struct UnicodeTables {
  CodePointSet white_space, numbers, words;                             // Rust
  CodePointSet punctuation_of_bert, removed_by_bert, nonspacing_marks;  // unicode_categories
  CodePointSet marks;                                                   // unicode-normalization-alignments
  std::map<char32_t, std::u32string> small_letters;
  // unicode-segmentation: characters that belong to the cluster before them, break clusters, belong to the cluster
  // after them; pictographs, which joiners connect.
  CodePointSet cluster_joins, cluster_controls, cluster_prepends, pictographs;

  static const UnicodeTables& get();
};

// Tables of normal forms, without Hangul, which is computed.
struct NormalizationTables {
  std::map<char32_t, std::u32string> canonical;   // full decompositions
  std::map<char32_t, std::u32string> compatible;  // full compatibility decompositions that differ
  std::map<char32_t, uint8_t> combining_classes;  // other than 0
  std::map<std::pair<char32_t, char32_t>, char32_t> compositions;

  static const NormalizationTables& get();
};

// The set of a character class in Oniguruma's patterns: a property by its name without case, '_', '-' and ' ';
// "[:alpha:]"; "\\w", or "[\\w]" if it differs inside a set. Null for an unknown name.
const CodePointSet* class_of_patterns(std::string_view name);

// Case-equivalent characters: single characters, and sequences of two or three.
struct FoldClass {
  std::u32string characters;
  std::u32string sequence;  // its characters have no case; empty for most classes
};
const std::vector<FoldClass>& fold_classes();

}  // namespace trifold
