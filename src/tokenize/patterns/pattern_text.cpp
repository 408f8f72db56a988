#include "tokenize/patterns/pattern_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

const FoldClass* fold_class_of(char32_t c) {
  static const std::map<char32_t, const FoldClass*> kClasses = [] {
    std::map<char32_t, const FoldClass*> classes;
    for (const FoldClass& entry : fold_classes())
      for (const char32_t member : entry.characters) classes[member] = &entry;
    return classes;
  }();
  const auto found = kClasses.find(c);
  return found == kClasses.end() ? nullptr : found->second;
}

bool same_but_for_case(char32_t left, char32_t right) {
  return left == right || (fold_class_of(left) != nullptr && fold_class_of(left) == fold_class_of(right));
}

std::string set_of(const FoldClass& entry) {
  std::string items;
  for (const char32_t c : entry.characters) items += pattern_of(c);
  return "[" + items + "]";
}

}  // namespace

std::string pattern_of(char32_t c) {
  const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  if (plain) return std::string(1, static_cast<char>(c));
  return fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(c));
}

std::string pattern_of(std::string_view open, const CodePointSet& set) {
  return fmt::format("[{}{}]", open, set.ranges());
}

std::string folded_items(char32_t c) {
  const FoldClass* entry = fold_class_of(c);
  return entry == nullptr ? pattern_of(c) : set_of(*entry);
}

std::string folded_atom(char32_t c) {
  const FoldClass* entry = fold_class_of(c);
  if (entry == nullptr || entry->sequence.empty()) return folded_items(c);
  std::string sequence;
  for (const char32_t part : entry->sequence) sequence += folded_items(part);
  return fmt::format("(?:{}|{})", sequence, set_of(*entry));
}

std::optional<std::string> folded_sequence(std::u32string_view characters) {
  for (const FoldClass& entry : fold_classes()) {
    if (!std::equal(entry.sequence.begin(), entry.sequence.end(), characters.begin(), characters.end(),
                    same_but_for_case))
      continue;
    std::string apart;
    for (const char32_t c : characters) apart += folded_items(c);
    return fmt::format("(?:{}|{})", apart, set_of(entry));
  }
  return std::nullopt;
}

}  // namespace trifold
