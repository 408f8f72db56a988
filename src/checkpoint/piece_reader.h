// Reads parts of one stored box, one block at a time.
#pragma once

#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/writer.h"
#include "files/file.h"

namespace trifold {

// The parts to read of one stored box, each with a block of memory that contains it.
struct PieceRead {
  const TensorInfo* tensor = nullptr;
  const PieceInfo* piece = nullptr;
  std::vector<std::pair<const NamedTensor*, Rect>> parts;
};

// Reads the blocks of kCrcBlock bytes that contain any of the parts, in order, and checks each. A damaged block is a
// BadInput that names file, tensor and box; the parts are then unspecified. Floating-point elements are converted to
// the wanted type, rounded to nearest. Needs memory for one block.
void read_piece(const File& file, const PieceRead& read);

}  // namespace trifold
