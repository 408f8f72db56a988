// StopTexts finds the first of some texts in a text that arrives in pieces, and holds back what may be the beginning of
// one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trifold {

class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> stops);

  // Adds a piece. Returns what is now known to precede any stop text; nothing more after one was found.
  std::string add(std::string_view piece);
  // What is held back, once no more pieces follow; nothing if a stop text was found.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace trifold
