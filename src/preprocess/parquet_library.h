// The functions of the module trifold_parquet.so (preprocess/parquet_module.h), loaded when they are first asked for.
#pragma once

#include <string>

#include "preprocess/parquet_module.h"

namespace trifold {

struct ParquetLibrary {
  ParquetModuleOpen* open = nullptr;
  ParquetModuleWrite* write = nullptr;
};

// Failure where there is no such module, or one of another build: it says that `file` needs it, and how to get it.
// From one thread at a time.
const ParquetLibrary& parquet_library(const std::string& file);

}  // namespace trifold
