// Helpers for tests of preprocessing: a run with few options.
#pragma once

#include <string>

#include "preprocess/preprocess.h"
#include "support/files.h"

namespace trifold::test {

inline PreprocessResult run(const PreprocessOptions& options, int threads = 1) {
  ThreadPool pool(threads);
  return preprocess(options, pool, [](const PreprocessProgress&) {});
}

inline PreprocessOptions options_for(const TempDir& dir, const std::string& input,
                                     const std::string& output) {
  PreprocessOptions options;
  options.inputs = {dir.file(input)};
  options.output = dir.file(output);
  options.format = "csv-hex";
  options.max_malformed = 0.5;
  return options;
}

}  // namespace trifold::test
