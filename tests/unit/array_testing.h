// Small files of arrays for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hdf5/hdf5_file.h"
#include "checkpoint/safetensors.h"
#include "files/file.h"
#include "support/files.h"
#include "unit/zip_testing.h"

namespace trifold::test {

template <class T>
std::string bytes_of(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

// A file of NumPy's format: `type` is "<i8", `shape` "(3, 2)".
inline std::string npy_of(std::string_view type, std::string_view shape, std::string_view elements) {
  const std::string header = "{'descr': '" + std::string(type) +
                             "', 'fortran_order': False, 'shape': " + std::string(shape) + ", }\n";
  std::string text("\x93NUMPY\1\0", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return text + header + std::string(elements);
}

inline std::string write_safetensors(const TempDir& folder, const std::string& file, const std::string& name,
                                     const std::string& type, const std::vector<int64_t>& shape,
                                     const std::string& elements) {
  const std::string path = folder.file(file);
  SafeTensor tensor{name, type, shape, 0, std::ssize(elements)};
  SafetensorsWriter writer(path, {tensor});
  writer.write(0, 0, elements.data(), elements.size());
  writer.finish();
  return path;
}

// An HDF5 file with one dataset in one piece, and one of zeros if it has a name.
inline std::string write_hdf5(const TempDir& folder, const std::string& file, const std::string& name,
                              DType type, const Shape& shape, const std::string& elements,
                              const std::string& zeros = {}) {
  const std::string path = folder.file(file);
  Hdf5File out = Hdf5File::create(path);
  const int64_t offset = out.reserve(name, type, shape);
  if (!zeros.empty()) out.reserve(zeros, type, shape);
  out.close();
  File change(path, File::Mode::Change);
  change.write(elements.data(), elements.size(), offset);
  change.close();
  return path;
}

}  // namespace trifold::test
