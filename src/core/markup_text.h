// Text as part of HTML, SVG or XML.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// Replaces the characters that have a meaning in markup, also within attributes in quotes.
inline std::string markup_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += c;
  }
  return result;
}

}  // namespace trifold
