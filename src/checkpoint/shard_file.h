// ShardFile writes one HDF5 file of a checkpoint in two steps. First HDF5 lays out the file: its structure, and space
// for the elements of every box. Then the elements are written directly to their offsets, block by block with their
// checksums. HDF5's process-wide lock is therefore held only for the layout, a full disk is an ordinary error, and a
// box may be written in parts, without memory for a whole one.
//
// Equal boxes and elements give equal bytes.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/hdf5/hdf5_file.h"
#include "checkpoint/manifest.h"
#include "files/file.h"

namespace trifold {

// A box of a global tensor, without elements.
struct ShardBox {
  std::string tensor;
  DType dtype = DType::F32;
  Shape global;
  Rect rect;

  int64_t bytes() const { return rect.elements() * static_cast<int64_t>(size_of(dtype)); }
};

class ShardFile {
 public:
  // Creates the file `path`, which must not exist, with disk space for all of `boxes`.
  ShardFile(const std::filesystem::path& path, int64_t step, std::vector<ShardBox> boxes);

  const std::vector<ShardBox>& boxes() const { return boxes_; }
  // Writes the next elements of a box, in row-major order.
  void append(size_t box, const void* data, size_t bytes);
  // Call after the last element of the last box: waits until everything is on the disk. Afterwards these are valid:
  void finish();
  const FileInfo& info() const { return info_; }
  PieceInfo piece(size_t box) const;  // its file number is 0

 private:
  std::vector<ShardBox> boxes_;
  std::vector<int64_t> offsets_;  // [box] offset in the file
  std::vector<BlockCrc> crcs_;
  std::optional<File> file_;  // opened after HDF5 has closed it
  FileInfo info_;
};

// The attributes of every HDF5 file of a checkpoint.
void write_file_attributes(Hdf5File& file, int64_t step);

}  // namespace trifold
