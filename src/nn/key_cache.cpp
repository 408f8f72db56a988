#include "nn/key_cache.h"

namespace trifold {

namespace {

// Each matrix begins at a multiple of this many bytes.
constexpr size_t kCacheAlignment = 64;

size_t matrix_bytes(int64_t positions, int64_t columns, DType dtype) {
  const size_t bytes = static_cast<size_t>(positions * columns) * size_of(dtype);
  return (bytes + kCacheAlignment - 1) / kCacheAlignment * kCacheAlignment;
}

}  // namespace

size_t KeyCache::bytes_of(std::span<const CachedRows> blocks, int64_t positions, DType dtype) {
  size_t bytes = 0;
  for (const CachedRows& block : blocks)
    for (const int64_t columns : block.columns) bytes += matrix_bytes(positions, columns, dtype);
  return bytes;
}

KeyCache::KeyCache(std::span<const CachedRows> blocks, int64_t positions, DType dtype, Device* device)
    : positions_(positions), memory_(bytes_of(blocks, positions, dtype), device), rows_(blocks.size()) {
  auto* at = static_cast<std::byte*>(memory_.data());
  for (size_t block = 0; block < blocks.size(); ++block)
    for (const int64_t columns : blocks[block].columns) {
      rows_[block].push_back({at, dtype, {positions, columns}});
      at += matrix_bytes(positions, columns, dtype);
    }
}

}  // namespace trifold
