// NpzFile reads several arrays in one file, as numpy.savez and numpy.savez_compressed write them: a zip archive (also
// of more than 4 GiB, ZIP64) with a member NAME.npy for each. It uses libarchive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/npy_file.h"

namespace trifold {

class NpzFile {
 public:
  // BadInput, naming the file, if it is missing, is not a zip archive, or its directory is damaged.
  explicit NpzFile(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  // The names of the arrays, in the order of the archive.
  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const;
  // Opens an array for reading from its first row; its name is "FILE: NAME". Its checksum is compared when the last row
  // is read. BadInput if there is no array of this name, or if it is damaged or encrypted.
  std::unique_ptr<NpyRows> open(std::string_view name) const;

 private:
  std::string path_;
  int64_t bytes_;
  std::vector<std::string> names_;
};

}  // namespace trifold
