// Normal forms, as section 3.11 of the Unicode standard defines them, with the tables of
// tokenize/unicode/unicode_tables.h.
#include <algorithm>
#include <bitset>

#include "tokenize/unicode/unicode.h"
#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

constexpr char32_t kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7, kSyllables = 0xAC00;
constexpr char32_t kVowelCount = 21, kTailCount = 28, kSyllableCount = 11172;

bool composes(NormalForm form) { return form == NormalForm::Nfc || form == NormalForm::Nfkc; }
bool is_compatible(NormalForm form) { return form == NormalForm::Nfkc || form == NormalForm::Nfkd; }
bool is_syllable(char32_t c) { return c >= kSyllables && c < kSyllables + kSyllableCount; }

uint8_t combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const auto& classes = NormalizationTables::get().combining_classes;
  const auto found = classes.find(c);
  return found == classes.end() ? 0 : found->second;
}

void decompose(char32_t c, bool compatible, std::u32string& out) {
  if (is_syllable(c)) {
    const char32_t index = c - kSyllables;
    out.push_back(kLeads + index / (kVowelCount * kTailCount));
    out.push_back(kVowels + index / kTailCount % kVowelCount);
    if (index % kTailCount != 0) out.push_back(kTails + index % kTailCount);
    return;
  }
  const NormalizationTables& tables = NormalizationTables::get();
  for (const auto* mapping : {compatible ? &tables.compatible : nullptr, &tables.canonical}) {
    if (mapping == nullptr) continue;
    const auto found = mapping->find(c);
    if (found == mapping->end()) continue;
    out += found->second;
    return;
  }
  out.push_back(c);
}

// Stably sorts marks by combining class.
void order_marks(std::u32string& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if(begin, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end,
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end == text.end() ? end : end + 1;
  }
}

// The composition of two characters; 0 if they do not compose.
char32_t composed(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + 19 && second >= kVowels && second < kVowels + kVowelCount)
    return kSyllables + ((first - kLeads) * kVowelCount + second - kVowels) * kTailCount;
  if (is_syllable(first) && (first - kSyllables) % kTailCount == 0 && second > kTails &&
      second < kTails + kTailCount)
    return first + second - kTails;
  const auto& pairs = NormalizationTables::get().compositions;
  const auto found = pairs.find({first, second});
  return found == pairs.end() ? 0 : found->second;
}

void compose(std::u32string& text) {
  constexpr size_t kNone = std::u32string::npos;
  size_t starter = kNone;
  size_t size = 0;
  int last = -1;  // combining class of the previous character if it blocks composition, else -1
  for (const char32_t c : text) {
    const int mark = combining_class(c);
    const bool blocked = last >= mark && last != -1;
    if (starter != kNone && !blocked) {
      if (const char32_t made = composed(text[starter], c)) {
        text[starter] = made;
        continue;
      }
    }
    if (mark == 0) starter = size;
    last = mark == 0 ? -1 : mark;
    text[size++] = c;
  }
  text.resize(size);
}

using CodePoints = std::bitset<0x110000>;

// Characters that may change, or change those before them. Text before any other character can be normalised
// separately.
CodePoints unsafe_characters(NormalForm form) {
  const NormalizationTables& tables = NormalizationTables::get();
  CodePoints unsafe;
  const auto add = [&](const auto& mapping) {
    for (const auto& [c, text] : mapping) {
      std::u32string made = text;
      if (composes(form)) compose(made);
      if (made != std::u32string(1, c)) unsafe.set(c);
    }
  };
  add(tables.canonical);
  if (is_compatible(form)) add(tables.compatible);
  for (const auto& entry : tables.combining_classes) unsafe.set(entry.first);
  if (!composes(form)) {
    for (char32_t i = 0; i < kSyllableCount; ++i) unsafe.set(kSyllables + i);
    return unsafe;
  }
  for (const auto& entry : tables.compositions) unsafe.set(entry.first.second);
  for (char32_t i = 0; i < kVowelCount; ++i) unsafe.set(kVowels + i);
  for (char32_t i = 1; i < kTailCount; ++i) unsafe.set(kTails + i);
  return unsafe;
}

const CodePoints& unsafe_in(NormalForm form) {
  switch (form) {
    case NormalForm::Nfc: {
      static const CodePoints kUnsafe = unsafe_characters(NormalForm::Nfc);
      return kUnsafe;
    }
    case NormalForm::Nfd: {
      static const CodePoints kUnsafe = unsafe_characters(NormalForm::Nfd);
      return kUnsafe;
    }
    case NormalForm::Nfkc: {
      static const CodePoints kUnsafe = unsafe_characters(NormalForm::Nfkc);
      return kUnsafe;
    }
    default: {
      static const CodePoints kUnsafe = unsafe_characters(NormalForm::Nfkd);
      return kUnsafe;
    }
  }
}

void append_normalized(std::string_view text, NormalForm form, std::string& out) {
  std::u32string wide;
  for (size_t at = 0; at < text.size();) decompose(next_character(text, at), is_compatible(form), wide);
  order_marks(wide);
  if (composes(form)) compose(wide);
  for (const char32_t c : wide) append_character(out, c);
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  const CodePoints& unsafe = unsafe_in(form);
  std::string out;
  out.reserve(text.size());
  size_t safe = 0;       // the last safe character begins here
  size_t given = 0;      // bytes already in `out`
  bool changes = false;  // something after `safe` may change
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (unsafe.test(next_character(text, at))) {
      changes = true;
      continue;
    }
    if (changes) {
      out += text.substr(given, safe - given);
      append_normalized(text.substr(safe, begin - safe), form, out);
      given = begin;
      changes = false;
    }
    safe = begin;
  }
  if (changes) {
    out += text.substr(given, safe - given);
    append_normalized(text.substr(safe), form, out);
  } else {
    out += text.substr(given);
  }
  return out;
}

}  // namespace trifold
