// Where the files are that tests read: golden values, small tokenizers, descriptions of devices.
#pragma once

#include <cstdlib>
#include <string>

namespace trifold::test {

// The folder `tests` of the source tree, or a copy of it: the environment variable TRIFOLD_TEST_DATA says
// where a program finds it that runs on another machine than it was built on; without the variable it is
// where it was built.
inline std::string test_data() {
  const char* folder = std::getenv("TRIFOLD_TEST_DATA");
  return folder != nullptr ? folder : TRIFOLD_TEST_DATA;
}

}  // namespace trifold::test
