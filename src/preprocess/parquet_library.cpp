#include "preprocess/parquet_library.h"

#include <dlfcn.h>

#include "core/error.h"
#include "core/module.h"

namespace trifold {

namespace {

constexpr const char* kParquetAdvice =
    "The libraries of Apache Arrow are needed: \"pip install pyarrow\" has them. Then configure and build "
    "Trifold again "
    "(cmake looks for pyarrow; -DTRIFOLD_PYARROW=FOLDER names it), or name the module's folder in "
    "TRIFOLD_MODULE_PATH; or "
    "take another format, such as CSV.";

template <class Function>
Function* in_parquet_module(void* module, const char* name) {
  return reinterpret_cast<Function*>(function_in(module, kParquetModuleFile, name));
}

ParquetLibrary load_parquet(const std::string& file) {
  std::string tried;
  void* module = open_module(module_folders(), kParquetModuleFile, RTLD_NOW | RTLD_LOCAL, tried);
  if (module == nullptr)
    fail("{}: the module {}, which reads and writes Parquet files, cannot be loaded:{}\n{}", file,
         kParquetModuleFile, tried, kParquetAdvice);
  check_module_version(kParquetModuleFile,
                       in_parquet_module<ParquetModuleVersion>(module, "trifold_parquet_version")(),
                       kParquetModuleVersion);
  return {in_parquet_module<ParquetModuleOpen>(module, "trifold_parquet_open"),
          in_parquet_module<ParquetModuleWrite>(module, "trifold_parquet_write")};
}

}  // namespace

const ParquetLibrary& parquet_library(const std::string& file) {
  static const ParquetLibrary kLibrary = load_parquet(file);
  return kLibrary;
}

}  // namespace trifold
