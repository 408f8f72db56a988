// The location of files that tests read: golden values, small tokenizers, descriptions of devices.
#pragma once

#include <cstdlib>
#include <string>

namespace trifold::test {

// The folder `tests` of the source tree of the build, or a copy named by TRIFOLD_TEST_DATA, for programs that run on a
// machine other than the one they were built on.
inline std::string test_data() {
  const char* folder = std::getenv("TRIFOLD_TEST_DATA");
  return folder != nullptr ? folder : TRIFOLD_TEST_DATA;
}

}  // namespace trifold::test
