#include "models/model.h"

#include <algorithm>
#include <map>
#include <utility>

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

int Model::blocks_without_backward() const {
  const auto first = std::find_if(blocks.begin(), blocks.end(),
                                  [](const Block& block) { return block.backward != BlockBackward::None; });
  return static_cast<int>(first - blocks.begin());
}

void Model::give_layers_backward() {
  for (Block& block : blocks)
    if (block.kind != BlockKind::Embedding) block.backward = BlockBackward::All;
}

// The last block has a backward even if nothing is trained, so that a plan has one.
void Model::set_backward() {
  int first = static_cast<int>(blocks.size()) - 1;
  for (const ParamSpec& spec : params.specs())
    if (!spec.frozen && !spec.is_buffer) first = std::min(first, spec.block);
  std::map<std::pair<int, BlockBackward>, int> kinds;  // the first block of a kind, and of a backward
  for (int index = 0; index < static_cast<int>(blocks.size()); ++index) {
    Block& block = blocks[static_cast<size_t>(index)];
    block.backward = index < first    ? BlockBackward::None
                     : index == first ? BlockBackward::Weights
                                      : BlockBackward::All;
    const auto [same, is_new] =
        kinds.try_emplace({block.like >= 0 ? block.like : index, block.backward}, index);
    block.like = is_new ? -1 : same->second;
  }
}

std::vector<CachedRows> Model::cached_rows() const {
  std::vector<CachedRows> rows;
  for (const Block& block : blocks) rows.push_back(block.cached);
  return rows;
}

}  // namespace trifold
