#include "tokenize/unicode/unicode_tables.h"

#include <fmt/format.h>

#include <mutex>
#include <unordered_map>

namespace trifold {

namespace {

struct NamedSet {
  std::string_view names;
  std::string_view packed;
};

#include "tokenize/unicode/unicode_tables.inc"

std::map<char32_t, std::u32string> read_mapping(std::string_view packed) {
  std::map<char32_t, std::u32string> mapping;
  char32_t at = 0;
  for (PackedNumbers numbers(packed); !numbers.done();) {
    at += numbers.next();
    std::u32string& text = mapping[at];
    for (uint32_t left = numbers.next(); left > 0; --left) text.push_back(numbers.next());
  }
  return mapping;
}

std::map<char32_t, uint8_t> read_combining_classes() {
  std::map<char32_t, uint8_t> classes;
  for (PackedNumbers numbers(kCombiningClasses); !numbers.done();) {
    const auto value = static_cast<uint8_t>(numbers.next());
    char32_t at = 0;
    for (uint32_t left = numbers.next(); left > 1; left -= 2) {
      at += numbers.next();
      for (uint32_t count = numbers.next(); count > 0; --count) classes[at++] = value;
    }
  }
  return classes;
}

std::map<std::pair<char32_t, char32_t>, char32_t> read_compositions() {
  std::map<std::pair<char32_t, char32_t>, char32_t> compositions;
  for (PackedNumbers numbers(kCompositions); !numbers.done();) {
    const char32_t first = numbers.next();
    const char32_t second = numbers.next();
    compositions[{first, second}] = numbers.next();
  }
  return compositions;
}

std::vector<FoldClass> read_folds() {
  std::vector<FoldClass> classes;
  for (PackedNumbers numbers(kFolds); !numbers.done();) {
    FoldClass& made = classes.emplace_back();
    for (uint32_t left = numbers.next(); left > 0; --left) made.sequence.push_back(numbers.next());
    for (uint32_t left = numbers.next(); left > 0; --left) made.characters.push_back(numbers.next());
  }
  return classes;
}

}  // namespace

const UnicodeTables& UnicodeTables::get() {
  static const UnicodeTables kTables{CodePointSet(kWhiteSpace),      CodePointSet(kNumbers),
                                     CodePointSet(kWords),           CodePointSet(kPunctuationOfBert),
                                     CodePointSet(kOthersOfBert),    CodePointSet(kNonspacingMarks),
                                     CodePointSet(kMarks),           read_mapping(kSmallLetters),
                                     CodePointSet(kClusterJoins),    CodePointSet(kClusterControls),
                                     CodePointSet(kClusterPrepends), CodePointSet(kPictographs)};
  return kTables;
}

const NormalizationTables& NormalizationTables::get() {
  static const NormalizationTables kTables{read_mapping(kCanonical), read_mapping(kCompatible),
                                           read_combining_classes(), read_compositions()};
  return kTables;
}

const CodePointSet* class_of_patterns(std::string_view name) {
  static std::mutex mutex;
  static std::unordered_map<std::string_view, CodePointSet> sets;  // by packed text
  if (name.find(' ') != std::string_view::npos) return nullptr;
  const std::string padded = fmt::format(" {} ", name);
  for (const NamedSet& set : kClasses) {
    if (set.names.find(padded) == std::string_view::npos) continue;
    const std::scoped_lock lock(mutex);
    return &sets.try_emplace(set.packed, set.packed).first->second;
  }
  return nullptr;
}

const std::vector<FoldClass>& fold_classes() {
  static const std::vector<FoldClass> kClassesOfFolds = read_folds();
  return kClassesOfFolds;
}

}  // namespace trifold
