// Lists and reads the numeric arrays of an HDF5 file that another program wrote, such as h5py.
//
// HDF5 trusts what it reads: a file made to deceive it is not fended off here. Offsets and sizes are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trifold {

struct Hdf5Array {
  std::string name;  // its path in the file, without a slash at the beginning: "train/ids"
  char kind = 'i';  // 'i', 'u': integers with and without a sign; 'f': IEEE floats; 'b': h5py's bools, 0 or 1
  int64_t size = 0;  // bytes of an element, 1 to 8
  std::vector<int64_t> shape;
  // Where the elements are in the file, row-major, if they are in one piece and little-endian.
  std::optional<int64_t> offset;

  int64_t bytes() const;
};

// All numeric datasets, ordered by name; others, and links to other names or files, are left out. BadInput, naming the file, if it is not an HDF5 file,
// or if a dataset has more elements than the file can hold.
std::vector<Hdf5Array> hdf5_arrays(const std::filesystem::path& path);

// Reads all elements, little-endian, to `to`, which has array.bytes() bytes.
void read_hdf5_array(const std::filesystem::path& path, const Hdf5Array& array, std::span<std::byte> to);

}  // namespace trifold
