// Hdf5Image is an HDF5 file in memory; only bytes that HDF5 has written take memory, not reserved space. HDF5 therefore
// never sees a full disk (some versions crash at exit when a close fails); writing the finished image reports it as an
// ordinary error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "files/file.h"

namespace trifold {

class Hdf5Image {
 public:
  void write(int64_t at, const void* from, size_t bytes);
  // Bytes that were never written read as zero.
  void read(int64_t at, void* to, size_t bytes) const;
  int64_t size() const { return size_; }
  void resize(int64_t size) { size_ = size; }
  // Sets the file's length to the image's, and writes the bytes that HDF5 has written.
  void write_to(const File& file) const;

 private:
  static constexpr int64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;

  std::map<int64_t, Page> pages_;  // [page number]
  int64_t size_ = 0;
};

// Makes HDF5 store the file that it creates with these access properties (an hid_t) in `image`, which must outlive the
// file. Call it under the lock of Hdf5File.
void keep_in_image(int64_t access_properties, Hdf5Image& image);

}  // namespace trifold
