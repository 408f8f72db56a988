#include "models/model.h"

namespace trifold {

const char* name_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::Embedding:
      return "embedding";
    case BlockKind::Layer:
      return "layer";
    case BlockKind::Head:
      return "head";
  }
  return "?";
}

std::vector<int> Model::layers() const {
  std::vector<int> numbers;
  for (size_t block = 0; block < blocks.size(); ++block)
    if (blocks[block].kind == BlockKind::Layer) numbers.push_back(static_cast<int>(block));
  return numbers;
}

std::vector<CachedRows> Model::cached_rows() const {
  std::vector<CachedRows> rows;
  for (const Block& block : blocks) rows.push_back(block.cached);
  return rows;
}

}  // namespace trifold
