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

void* open_module(std::span<const fs::path> folders, const char* file, int flags, std::string& tried) {
  for (const fs::path& folder : folders) {
    const fs::path path = folder / file;
    std::error_code error;
    if (!fs::exists(path, error)) {
      tried += fmt::format("\n  {}: there is no such file", path.string());
      continue;
    }
    if (void* module = dlopen(path.c_str(), flags | RTLD_NODELETE)) return module;
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason != nullptr ? reason : path.string() + ": cannot be loaded");
  }
  return nullptr;
}

void* function_in(void* module, const char* file, const char* name) {
  void* symbol = dlsym(module, name);
  check(symbol != nullptr, "the module {} has no function {}: it does not belong to this build of Trifold",
        file, name);
  return symbol;
}

void check_module_version(const char* file, int64_t found, int64_t expected) {
  check(found == expected,
        "the module {} belongs to another build of Trifold (version {}, not {}): "
        "build and install both together",
        file, found, expected);
}

}  // namespace trifold
