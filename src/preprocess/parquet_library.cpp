#include "preprocess/parquet_library.h"

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

constexpr ModuleInfo kParquetModule{kParquetModuleFile, "trifold_parquet_version", kParquetModuleVersion};

template <class Function>
Function* in_parquet_module(void* module, const char* name) {
  return reinterpret_cast<Function*>(function_in(module, kParquetModuleFile, name));
}

ParquetLibrary load_parquet(const std::string& file) {
  std::string tried;
  void* module = open_module(module_folders(), kParquetModule, tried);
  if (module == nullptr)
    fail("{}: the module {}, which reads and writes Parquet files, cannot be loaded:{}\n{}", file,
         kParquetModuleFile, tried, kParquetAdvice);
  return {in_parquet_module<ParquetModuleOpen>(module, "trifold_parquet_open"),
          in_parquet_module<ParquetModuleWrite>(module, "trifold_parquet_write")};
}

}  // namespace

const ParquetLibrary& parquet_library(const std::string& file) {
  static const ParquetLibrary kLibrary = load_parquet(file);
  return kLibrary;
}

ParquetReport report_parquet() {
  ParquetReport report{report_module(module_folders(), kParquetModule), ""};
  if (report.module.module != nullptr)
    report.arrow = in_parquet_module<ParquetModuleLibrary>(report.module.module, "trifold_parquet_library")();
  return report;
}

}  // namespace trifold
