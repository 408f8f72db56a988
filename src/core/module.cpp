#include "core/module.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/program_folder.h"

namespace trifold {

namespace fs = std::filesystem;

std::vector<fs::path> module_folders() {
  std::vector<fs::path> folders;
  if (const char* listed = std::getenv("TRIFOLD_MODULE_PATH")) {
    std::string_view rest = listed;
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      if (!folder.empty()) folders.emplace_back(folder);
      rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    }
  }
  if (const fs::path home = program_folder(); !home.empty()) {
    for (const fs::path& folder : {home, home.parent_path() / "lib", home.parent_path() / "lib" / "trifold"})
      folders.push_back(folder);
  }
  return folders;
}

namespace {

// dlopen's handle of the file, or null and the loader's message.
void* load(const fs::path& path, bool global, std::string& problem) {
  const int flags = RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL) | RTLD_NODELETE;
  if (void* module = dlopen(path.c_str(), flags)) return module;
  const char* reason = dlerror();
  problem = reason != nullptr ? reason : path.string() + ": cannot be loaded";
  return nullptr;
}

void check_version(void* module, const ModuleInfo& info) {
  auto* version = reinterpret_cast<int64_t (*)()>(function_in(module, info.file, info.version_function));
  const int64_t found = version();
  check(found == info.version,
        "the module {} belongs to another build of Trifold (version {}, not {}): "
        "build and install both together",
        info.file, found, info.version);
}

// Whether a loader's message about `file` says that another file, which it links, was not found.
bool names_missing_library(const std::string& problem, const fs::path& file) {
  return problem.ends_with(": cannot open shared object file: No such file or directory") &&
         !problem.starts_with(file.string() + ":");
}

}  // namespace

void* open_module(std::span<const fs::path> folders, const ModuleInfo& module, std::string& tried) {
  for (const fs::path& folder : folders) {
    const fs::path path = folder / module.file;
    std::error_code error;
    if (!fs::exists(path, error)) {
      tried += fmt::format("\n  {}: there is no such file", path.string());
      continue;
    }
    std::string problem;
    if (void* opened = load(path, module.global, problem)) {
      check_version(opened, module);
      return opened;
    }
    tried += fmt::format("\n  {}", problem);
  }
  return nullptr;
}

void* function_in(void* module, const char* file, const char* name) {
  void* symbol = dlsym(module, name);
  check(symbol != nullptr, "the module {} has no function {}: it does not belong to this build of Trifold",
        file, name);
  return symbol;
}

ModuleReport report_module(std::span<const fs::path> folders, const ModuleInfo& module) {
  using State = ModuleReport::State;
  ModuleReport report;
  for (const fs::path& folder : folders) {
    const fs::path path = folder / module.file;
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    std::string problem;
    void* opened = load(path, module.global, problem);
    if (opened == nullptr) {
      if (report.state != State::Absent) continue;  // the first file is reported
      report = {names_missing_library(problem, path) ? State::NeedsLibrary : State::Broken, path, problem};
      continue;
    }
    try {
      check_version(opened, module);
      return {State::Usable, path, "", opened};
    } catch (const Error& other_build) {
      return {State::Broken, path, other_build.what()};
    }
  }
  return report;
}

}  // namespace trifold
