// Hdf5Image: an HDF5 file in memory, as far as HDF5 has written it. Room that was set aside and not written
// takes none. The library cannot meet a full disk while it closes such a file, which in some versions is a
// crash at the program's exit; who writes the image to a file meets it as an ordinary error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "checkpoint/files.h"

namespace trifold {

class Hdf5Image {
 public:
  void write(int64_t at, const void* from, size_t bytes);
  // What was never written reads as zero.
  void read(int64_t at, void* to, size_t bytes) const;
  int64_t size() const { return size_; }
  void resize(int64_t size) { size_ = size; }
  // Gives the file the size of the image, and what was written.
  void write_to(const File& file) const;

 private:
  static constexpr int64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;

  std::map<int64_t, Page> pages_;  // by number
  int64_t size_ = 0;
};

// Makes HDF5 keep the file that is created with these access properties (an hid_t) in `image`, which must
// outlive the file. To be called under the lock of Hdf5File.
void keep_in_image(int64_t access_properties, Hdf5Image& image);

}  // namespace trifold
