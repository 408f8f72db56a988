// Loads the module trifold_parquet.so (preprocess/parquet_module.h) on first use.
#pragma once

#include <string>

#include "preprocess/parquet_module.h"

namespace trifold {

struct ParquetLibrary {
  ParquetModuleOpen* open = nullptr;
  ParquetModuleWrite* write = nullptr;
};

// The functions of the module. Failure if the module is missing or belongs to another build; the message says that
// `file` needs it and how to get it. Not thread-safe.
const ParquetLibrary& parquet_library(const std::string& file);

}  // namespace trifold
