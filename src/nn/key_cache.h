// KeyCache: the keys and values of the positions of one sequence, so that a model that continues it computes only the
// new positions. Layers stay stateless: while a block is constructed, its layers declare the rows that they keep of a
// position (BlockBuilder::cached_rows), and they find the memory in Run::key_cache.
//
// A forward with a cache has a batch of one sample whose `rows` are consecutive positions, the new ones; the cache holds
// all earlier ones. Layers write the rows of the new positions and read the rows of all positions up to the last new one.
// The owner of the cache knows which sequence it holds. A model continues a sequence only if no layer has an obstacle.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace trifold {

// Index of the rows that a layer keeps: of its block, and among its block's.
struct CachedRowsId {
  int block = -1, index = -1;
};

// What the layers of a block keep of each position.
struct CachedRows {
  std::vector<int64_t> columns;  // [CachedRowsId::index]
  // Why forward needs all positions of a sample at once; empty if it does not.
  std::string obstacle;
};

class KeyCache {
 public:
  // Memory for `positions` positions. `blocks` is indexed by CachedRowsId::block.
  KeyCache(std::span<const CachedRows> blocks, int64_t positions, DType dtype, Device* device);
  // The bytes of such a cache.
  static size_t bytes_of(std::span<const CachedRows> blocks, int64_t positions, DType dtype);

  int64_t positions() const { return positions_; }
  size_t bytes() const { return memory_.bytes(); }
  // [positions, columns]
  Tensor rows(CachedRowsId id) const {
    return rows_.at(static_cast<size_t>(id.block)).at(static_cast<size_t>(id.index));
  }

 private:
  int64_t positions_;
  Buffer memory_;
  std::vector<std::vector<Tensor>> rows_;  // [block][index]
};

}  // namespace trifold
