// Hdf5File: the few HDF5 operations that checkpoints need, each with every return code checked.
//
// HDF5 has process-wide state and is not thread-safe in every build, so all calls are made under one process-wide lock.
// The library does not print its errors; they become part of the Error. Files are created with version bounds (1.8,
// 1.10), so that their metadata is checksummed and a file that was not closed is recognised. The library's file locks
// are off: they fail on network file systems, and a checkpoint is never read while it is written. A new file stays in
// memory, without elements, until it is closed (checkpoint/hdf5/hdf5_image.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/hdf5/hdf5_image.h"
#include "mesh/rect.h"

namespace trifold {

class Hdf5File {
 public:
  // The source of one box of a virtual dataset. File names are relative to the folder of the virtual dataset.
  struct Source {
    Rect rect;
    std::string file;
    std::string dataset;
  };

  static Hdf5File create(const std::filesystem::path& path);
  // The caller must have checked the file's CRC: HDF5 trusts what it reads.
  static Hdf5File open_read(const std::filesystem::path& path);

  ~Hdf5File();  // closes and ignores errors; writers call close()
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&&) = delete;
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  // An attribute of an object of this file ("/" is the file itself).
  void set_attribute(const std::string& object, const std::string& name, const std::string& value);
  void set_attribute(const std::string& object, const std::string& name, std::span<const int64_t> values);

  // Creates a contiguous dataset, and the groups of its path, with space for its elements. The caller writes them to
  // the file itself after close(), at the returned offset. Scalars have the shape [1]. 16-bit floats are raw words.
  int64_t reserve(const std::string& dataset, DType dtype, const Shape& shape);
  // Creates a dataset that presents boxes of other files. Elements without a source read as NaN (the lowest value for
  // signed and the highest for unsigned integers).
  void write_virtual(const std::string& dataset, DType dtype, const Shape& shape,
                     std::span<const Source> sources);

  // Reads `part` (global coordinates) of a dataset that holds the box `stored` into the same part of `data`, a
  // row-major block that holds the box `wanted`. f32 and f64 are converted to the dtype of `data`.
  void read(const std::string& dataset, const Rect& stored, const Rect& part, const Tensor& data,
            const Rect& wanted) const;

  // Closes the file. A new file is written now; failures (a full disk) are thrown.
  void close();

 private:
  Hdf5File(std::filesystem::path path, int64_t id, std::unique_ptr<Hdf5Image> image);

  std::filesystem::path path_;
  int64_t id_;                        // hid_t
  std::unique_ptr<Hdf5Image> image_;  // content of a new file
};

}  // namespace trifold
