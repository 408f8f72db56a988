// Library: one of NVIDIA's libraries, opened on first use.
//
// Searched for, in order: in the folders of TRIFOLD_CUDA_LIBRARY_PATH (separated by colons), next to this
// module, in the system loader's search path, in the usual folders of a CUDA toolkit, and where Python's
// wheels install it in the active environment (site-packages/nvidia/*/lib).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trifold::cuda {

class Library {
 public:
  // `file` is the name with its version ("libcudnn.so.9"), `what` the common name, for messages. Throws an
  // Error that lists the folders searched. The library stays open until the process ends.
  Library(std::string file, std::string what);

  // Stores the address of the function `name` in `*function`; throws if the library has no such function.
  template <class Function>
  void find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string file_;
  std::string what_;
  void* handle_ = nullptr;
};

// The folders searched for libraries; an empty one stands for the system's own search path.
std::vector<std::filesystem::path> library_folders();

}  // namespace trifold::cuda
