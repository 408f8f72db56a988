// The location of files that tests read: golden values, small tokenizers, descriptions of devices.
#pragma once

#include <cstdlib>
#include <string>

namespace trifold::test {

// The folder `tests` of the source tree, or a copy of it: TRIFOLD_TEST_DATA names it for a program that runs on another
// machine than it was built on; by default it is the source tree of the build.
inline std::string test_data() {
  const char* folder = std::getenv("TRIFOLD_TEST_DATA");
  return folder != nullptr ? folder : TRIFOLD_TEST_DATA;
}

}  // namespace trifold::test
