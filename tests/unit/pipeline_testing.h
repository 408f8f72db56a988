// What the tests of plans share.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace trifold::test {

// The text of a file of tests/golden.
inline std::string golden_text(const std::string& name) {
  std::ifstream file(std::string(TRIFOLD_TEST_DATA) + "/golden/" + name);
  if (!file) throw std::runtime_error("cannot open the golden file " + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace trifold::test
