// Library: one of NVIDIA's libraries, opened when it is needed first.
//
// Looked for, in order: in the folders of TRIFOLD_CUDA_LIBRARY_PATH (separated by colons), beside this
// module, wherever the system's loader finds the name, in the usual folders of a CUDA toolkit, and where
// Python's wheels put it in the environment that is active (site-packages/nvidia/*/lib).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trifold::cuda {

class Library {
 public:
  // `file` is the name with its version ("libcudnn.so.9"), `what` the name people know it by. Throws an Error
  // that lists where it was looked for. It stays open until the process ends.
  Library(std::string file, std::string what);

  // The function called `name`, into `*function`; throws when the library has none.
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

// The folders in which libraries are looked for; an empty one stands for the system's own search.
std::vector<std::filesystem::path> library_folders();

}  // namespace trifold::cuda
