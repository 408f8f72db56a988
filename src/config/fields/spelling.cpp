#include "config/fields/spelling.h"

#include <algorithm>
#include <cctype>

namespace trifold {

std::string hyphenated(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string folded(std::string_view choice) {
  std::string result = hyphenated(choice);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace trifold
