// Modules: shared libraries of this build that are opened when they are needed first (MPI, CUDA), so that the
// program starts on machines that have none of what they link.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trifold {

// The folders in which modules are looked for, in order: those of the environment variable
// TRIFOLD_MODULE_PATH (separated by colons), then beside the program, ../lib and ../lib/trifold.
std::vector<std::filesystem::path> module_folders();

// The first module `file` in `folders` that can be loaded, with dlopen's `flags`; it stays until the process
// ends. Null where there is none: then `tried` has a line for each folder that says why.
void* open_module(std::span<const std::filesystem::path> folders, const char* file, int flags,
                  std::string& tried);

// The function `name` of an opened module. Throws an Error where it has none.
void* function_in(void* module, const char* file, const char* name);

// Throws an Error unless both versions are the same: a module and a program that were built apart misread
// each other's memory.
void check_module_version(const char* file, int64_t found, int64_t expected);

}  // namespace trifold
