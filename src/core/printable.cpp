#include "core/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace trifold {

namespace {

constexpr char32_t kInvalid = 0xFFFFFFFF;

// The character at byte `at` and its length in bytes; kInvalid and 1 if no valid character begins there.
struct Character {
  char32_t code = kInvalid;
  size_t bytes = 1;
};

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

Character character_at(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return {};
  char32_t code = first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!continues(text, at + i)) return {};
    code = code << 6U | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {};
  return {code, bytes};
}

// Control characters of ISO 8859, and characters that are invisible or change the direction of their
// neighbours.
bool is_hidden(char32_t c) {
  return (c >= 0x80 && c <= 0x9F) || c == 0xAD || c == 0x61C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F);
}

void append_escaped(std::string& out, std::string_view text, size_t at, const Character& character) {
  const auto to = std::back_inserter(out);
  const char32_t c = character.code;
  if (c == kInvalid || c < 0x20 || c == 0x7F)
    fmt::format_to(to, "\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
  else if (is_hidden(c))
    fmt::format_to(to, "\\u{{{:04X}}}", static_cast<uint32_t>(c));
  else
    out.append(text.substr(at, character.bytes));
}

}  // namespace

std::string printable(std::string_view content, size_t most_bytes) {
  std::string out;
  size_t at = 0;
  while (at < content.size()) {
    const Character character = character_at(content, at);
    if (at + character.bytes > most_bytes) break;
    if (character.code == '\n')
      out += "\\n";
    else if (character.code == '\t')
      out += "\\t";
    else if (character.code == '\r')
      out += "\\r";
    else
      append_escaped(out, content, at, character);
    at += character.bytes;
  }
  if (at < content.size()) out += fmt::format("... ({} bytes in all)", content.size());
  return out;
}

std::string printable_message(std::string_view message) {
  std::string out;
  for (size_t at = 0; at < message.size();) {
    const Character character = character_at(message, at);
    if (character.code == '\n' || character.code == '\t')
      out += message[at];
    else
      append_escaped(out, message, at, character);
    at += character.bytes;
  }
  return out;
}

}  // namespace trifold
