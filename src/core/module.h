// Modules: shared libraries of this build (MPI, CUDA, Parquet) that are opened on first use, so that the program
// starts on machines without the libraries that they link.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trifold {

// A module as the program knows it.
struct ModuleInfo {
  const char* file;              // "trifold_mpi.so"
  const char* version_function;  // exported; an int64_t() that returns the version the module was built with
  int64_t version;               // that this program needs
  bool global = false;           // libraries that are loaded later see its symbols (RTLD_GLOBAL)
};

// The folders searched for modules, in order: the folders in the environment variable TRIFOLD_MODULE_PATH
// (separated by colons), the program's folder, and from there ../lib and ../lib/trifold.
std::vector<std::filesystem::path> module_folders();

// Opens the first file of `module` in `folders` that can be loaded; it stays loaded until the process ends. Null if
// there is none: then `tried` has a line for each folder that says why. Throws an Error if the module has another
// version: a module and a program from different builds would misread each other's memory.
void* open_module(std::span<const std::filesystem::path> folders, const ModuleInfo& module,
                  std::string& tried);

// The function `name` of an opened module. Throws an Error if there is none.
void* function_in(void* module, const char* file, const char* name);

// Whether a module can be used, for a report about this installation.
struct ModuleReport {
  enum class State {
    Usable,
    Absent,        // no folder has the file
    NeedsLibrary,  // a library that it links is not installed
    Broken,        // it cannot be loaded for another reason, or belongs to another build
  };
  State state = State::Absent;
  std::filesystem::path file;  // the loaded file, or the first that exists; empty: Absent
  std::string problem;         // the loader's message; empty: Usable or Absent
  void* module = nullptr;      // Usable: as from open_module
};

// Opens `module` as open_module does, without throwing.
ModuleReport report_module(std::span<const std::filesystem::path> folders, const ModuleInfo& module);

}  // namespace trifold
