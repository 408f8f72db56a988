// NpzFile: several arrays in one file, as numpy.savez and numpy.savez_compressed write them: a zip archive (also of more
// than 4 GiB, ZIP64) with a member NAME.npy for each, stored as it is or deflated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/mapped_file.h"
#include "files/npy_file.h"

namespace trifold {

class NpzFile {
 public:
  // BadInput, naming the file, for one that is missing, no zip archive, or damaged in its directory.
  explicit NpzFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t bytes() const { return file_.size(); }
  // Of the arrays, in the order of the archive.
  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  // Reads an array from its first row; its name is "FILE: NAME". Its checksum is compared when all rows were read. The file
  // must outlive it. BadInput where there is none of this name, where it is damaged or packed in another way.
  std::unique_ptr<NpyRows> open(std::string_view name) const;

 private:
  struct Member {
    std::string name;  // without ".npy"
    int method = 0;
    bool encrypted = false;
    uint32_t crc = 0;
    uint64_t packed = 0, bytes = 0;  // of its data
    uint64_t header = 0;             // where its own header begins
  };
  void read_directory();
  Member read_member(std::string_view entry) const;
  std::string_view data_of(const Member& member) const;

  MappedFile file_;
  std::vector<Member> members_;
};

}  // namespace trifold
