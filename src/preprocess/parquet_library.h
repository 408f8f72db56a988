// Loads the module trifold_parquet.so (preprocess/parquet_module.h) on first use.
#pragma once

#include <string>

#include "core/module.h"
#include "preprocess/parquet_module.h"

namespace trifold {

struct ParquetLibrary {
  ParquetModuleOpen* open = nullptr;
  ParquetModuleWrite* write = nullptr;
};

// The functions of the module. Failure if the module is missing or belongs to another build; the message says that
// `file` needs it and how to get it. Not thread-safe.
const ParquetLibrary& parquet_library(const std::string& file);

// The Parquet module of this installation, for a report.
struct ParquetReport {
  ModuleReport module;
  std::string arrow;  // the version of Apache Arrow, "24.0.0"; empty unless Usable
};
ParquetReport report_parquet();

}  // namespace trifold
