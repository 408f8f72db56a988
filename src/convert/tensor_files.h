// The safetensors files of a converted model: one, or several with an index if it is larger than a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trifold {

struct WrittenTensor {
  std::string name;
  int64_t bytes = 0;
};

// Which file each tensor is in. Files are filled in the order of the tensors, and no tensor is cut.
class TensorFiles {
 public:
  // Files of at most `gigabytes` (1e9 bytes) each, or of one larger tensor.
  TensorFiles(std::span<const WrittenTensor> tensors, double gigabytes);

  size_t size() const { return files_.size(); }
  // The bytes of all tensors.
  int64_t bytes() const { return bytes_; }
  // The name of a file: model.safetensors if it is the only one.
  std::string name(size_t file) const;
  // The indices of the tensors in a file.
  const std::vector<size_t>& tensors(size_t file) const { return files_[file]; }
  // Writes the index into a folder if there are several files.
  void write_index(const std::filesystem::path& folder) const;

 private:
  std::vector<std::string> names_;  // [tensor]
  std::vector<std::vector<size_t>> files_;
  int64_t bytes_ = 0;
};

// The path of a new folder. BadInput unless it is empty or does not exist.
std::filesystem::path new_folder(const std::string& path);

}  // namespace trifold
