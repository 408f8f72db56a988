#include "tokenize/unicode/clusters.h"

#include "tokenize/unicode/unicode.h"
#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

enum class Kind { Other, Return, LineFeed, Control, Joins, Joiner, Prepend, Pictograph, L, V, T, LV, LVT };

Kind hangul_kind(char32_t c) {
  if ((c >= 0x1100 && c < 0x1160) || (c >= 0xA960 && c < 0xA97D)) return Kind::L;
  if ((c >= 0x1160 && c < 0x11A8) || (c >= 0xD7B0 && c < 0xD7C7)) return Kind::V;
  if ((c >= 0x11A8 && c < 0x1200) || (c >= 0xD7CB && c < 0xD7FC)) return Kind::T;
  if (c >= 0xAC00 && c < 0xD7A4) return (c - 0xAC00) % 28 == 0 ? Kind::LV : Kind::LVT;
  return Kind::Other;
}

Kind kind_of(char32_t c) {
  const UnicodeTables& tables = UnicodeTables::get();
  if (c == '\r') return Kind::Return;
  if (c == '\n') return Kind::LineFeed;
  if (c < 0x7F) return c < ' ' ? Kind::Control : Kind::Other;
  if (c == 0x200D) return Kind::Joiner;
  if (tables.cluster_joins.contains(c)) return Kind::Joins;
  if (tables.cluster_controls.contains(c)) return Kind::Control;
  if (tables.cluster_prepends.contains(c)) return Kind::Prepend;
  if (tables.pictographs.contains(c)) return Kind::Pictograph;
  return hangul_kind(c);
}

bool is_control(Kind kind) { return kind == Kind::Return || kind == Kind::LineFeed || kind == Kind::Control; }

// Whether no cluster ends between two characters; `emoji`: a pictograph and a joiner are before `after`.
bool holds_together(Kind before, Kind after, bool emoji) {
  if (before == Kind::Return && after == Kind::LineFeed) return true;
  if (is_control(before) || is_control(after)) return false;
  if (after == Kind::Joins || after == Kind::Joiner || before == Kind::Prepend) return true;
  if (before == Kind::L)
    return after == Kind::L || after == Kind::V || after == Kind::LV || after == Kind::LVT;
  if (before == Kind::LV || before == Kind::V) return after == Kind::V || after == Kind::T;
  if (before == Kind::LVT || before == Kind::T) return after == Kind::T;
  return emoji && after == Kind::Pictograph;
}

}  // namespace

size_t cluster_end(std::string_view text, size_t begin) {
  size_t end = begin;
  Kind before = kind_of(next_character(text, end));
  bool pictograph = before == Kind::Pictograph;  // and characters that join it
  for (size_t next = end; end < text.size(); end = next) {
    const Kind after = kind_of(next_character(text, next));
    if (!holds_together(before, after, pictograph && before == Kind::Joiner)) break;
    pictograph = after == Kind::Pictograph || (pictograph && (after == Kind::Joins || after == Kind::Joiner));
    before = after;
  }
  return end;
}

}  // namespace trifold
