#include "tokenize/text_lines.h"

#include <algorithm>

namespace trifold {

size_t cut_before(std::string_view text, size_t longest) {
  const size_t space = text.substr(0, longest).rfind(' ');
  if (space != std::string_view::npos) return space + 1;
  size_t cut = longest;  // bytes 10xxxxxx continue a character, which has at most three of them
  while (cut > 0 && longest - cut < 4 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
  return cut > 0 ? cut : longest;
}

size_t find_line_cut(std::string_view text, size_t from, LineCut place) {
  if (place == LineCut::None) return 0;
  for (size_t at = text.find('\n', from); at != std::string_view::npos && at + 1 < text.size();
       at = text.find('\n', at + 1))
    if (at > 0 && may_end_line(text[at - 1]) && may_begin_line(text[at + 1]))
      return place == LineCut::AfterLineEnd ? at + 1 : at;
  return 0;
}

void for_each_line(std::string_view text, size_t longest, FunctionRef<void(std::string_view)> body) {
  while (!text.empty()) {
    const size_t line_end = text.substr(0, longest).find('\n');
    const size_t size = line_end != std::string_view::npos ? line_end + 1
                        : text.size() <= longest           ? text.size()
                                                           : cut_before(text, longest);
    body(text.substr(0, size));
    text.remove_prefix(size);
  }
}

}  // namespace trifold
