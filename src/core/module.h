// Modules: shared libraries of this build (MPI, CUDA, Parquet) that are opened on first use, so that the program
// starts on machines without the libraries that they link.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trifold {

// The folders searched for modules, in order: the folders in the environment variable TRIFOLD_MODULE_PATH
// (separated by colons), the program's folder, and from there ../lib and ../lib/trifold.
std::vector<std::filesystem::path> module_folders();

// The first module `file` in `folders` that can be loaded, with dlopen's `flags`; it stays loaded until the
// process ends. Null if there is none: then `tried` has a line for each folder that says why.
void* open_module(std::span<const std::filesystem::path> folders, const char* file, int flags,
                  std::string& tried);

// The function `name` of an opened module. Throws an Error if there is none.
void* function_in(void* module, const char* file, const char* name);

// Throws an Error unless both versions are equal: a module and a program from different builds would misread
// each other's memory.
void check_module_version(const char* file, int64_t found, int64_t expected);

}  // namespace trifold
