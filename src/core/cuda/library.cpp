#include "core/cuda/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace trifold::cuda {

namespace {

namespace fs = std::filesystem;
using Folders = std::vector<fs::path>;

void add_listed(Folders& folders, const char* variable) {
  const char* listed = std::getenv(variable);
  for (std::string_view rest = listed != nullptr ? listed : ""; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (!folder.empty()) folders.emplace_back(folder);
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
}

// Adds the folder of the file that contains this code.
void add_own(Folders& folders) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&library_folders), &info) != 0 && info.dli_fname != nullptr)
    folders.push_back(fs::path(info.dli_fname).parent_path());
}

std::vector<fs::path> inside(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

void add_wheels(Folders& folders, const char* variable) {
  const char* root = std::getenv(variable);
  if (root == nullptr) return;
  for (const fs::path& python : inside(fs::path(root) / "lib"))
    for (const fs::path& package : inside(python / "site-packages" / "nvidia"))
      folders.push_back(package / "lib");
}

}  // namespace

std::vector<fs::path> library_folders() {
  Folders folders;
  add_listed(folders, "TRIFOLD_CUDA_LIBRARY_PATH");
  add_own(folders);
  folders.emplace_back();
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(home)) folders.push_back(fs::path(root) / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const char* root : {"VIRTUAL_ENV", "CONDA_PREFIX"}) add_wheels(folders, root);
  return folders;
}

Library::Library(std::string file, std::string what) : file_(std::move(file)), what_(std::move(what)) {
  std::string tried;
  for (const fs::path& folder : library_folders()) {
    std::error_code error;
    const fs::path path = folder / file_;
    if (!folder.empty() && !fs::exists(path, error)) {
      tried += fmt::format("\n  {}: there is no such file", path.string());
      continue;
    }
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ != nullptr) return;
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason != nullptr ? reason : path.string() + ": cannot be loaded");
  }
  bad_input(
      "{} ({}) cannot be loaded:{}\nInstall it (with CUDA, or as a wheel in the Python environment that is "
      "active), or name its folder in TRIFOLD_CUDA_LIBRARY_PATH.",
      what_, file_, tried);
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  check(found != nullptr, "{} ({}) has no function {}: it is older than this build of Trifold needs", what_,
        file_, name);
  return found;
}

}  // namespace trifold::cuda
