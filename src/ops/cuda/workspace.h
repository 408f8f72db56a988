// What operations of a device take of its memory beside their tensors. A queue has one such piece, as large
// as the largest that anything on it asked for (DeviceQueue::workspace); plans count it before there is a
// device. Bytes. Nothing here includes CUDA's headers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trifold::cuda {

constexpr size_t kWorkspaceAlignment = 256;
constexpr size_t aligned_workspace(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// ---- products (lt_product.h) ----

constexpr size_t kLtWorkspace = size_t{32} << 20;  // what cuBLAS itself takes on Hopper
constexpr int64_t kMostBiasColumns = 1 << 17;      // of a bias whose gradient comes with a product
constexpr size_t kProductWorkspace = kLtWorkspace + kMostBiasColumns * sizeof(double);

// Of one factor that is rounded to 8 bits (fp8.h), behind that of the product: its scale, what finding it
// needs, and the codes.
constexpr size_t kFp8Scratch = 4096;
constexpr size_t fp8_factor_workspace(int64_t elements) {
  return kWorkspaceAlignment + kFp8Scratch + aligned_workspace(static_cast<size_t>(elements));
}

// ---- sorting of lookups (kernels/sort.cuh) ----

constexpr int64_t kSortTile = 2048;      // keys that a block counts
constexpr int64_t kSortDigits = 256;     // values of a digit
constexpr size_t kSortListsAtOnce = 32;  // in one launch

// Of lists of so many keys, in the order in which they are sorted: how often each digit is met in each tile,
// of the lists of one launch.
inline size_t sort_workspace(std::span<const int64_t> keys) {
  int64_t most = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kSortListsAtOnce) {
    int64_t tiles = 0;
    for (size_t i = begin; i < keys.size() && i < begin + kSortListsAtOnce; ++i)
      tiles += (keys[i] + kSortTile - 1) / kSortTile;
    most = tiles > most ? tiles : most;
  }
  return static_cast<size_t>(most * kSortDigits) * sizeof(uint32_t);
}

// ---- gradients of rows by id (kernels/embedding.cu) ----

// Of so many ids: they are sorted, with their places.
inline size_t embedding_workspace(int64_t ids) {
  return static_cast<size_t>(2 * ids) * sizeof(uint64_t) + sort_workspace({&ids, 1});
}

// ---- updates of rows (kernels/row_updates.cu) ----

constexpr int64_t kUpdatesAtOnce = 32;           // tables in one launch
constexpr int64_t kUpdatePart = 256;             // lookups that are summed together where a row has more
constexpr int64_t kMostSums = int64_t{2} << 20;  // numbers, for which tables share a launch

// Of one table: two sums of each part. `lookups` are the most, `widest` the columns of the widest row, of any
// table of an update.
constexpr int64_t sums_of_update(int64_t lookups, int64_t widest) {
  return (lookups + kUpdatePart - 1) / kUpdatePart * 2 * widest;
}
// Tables of one launch: as many as kMostSums are enough for, but one at least.
constexpr int64_t updates_together(int64_t lookups, int64_t widest) {
  const int64_t enough = kMostSums / (sums_of_update(lookups, widest) + 1);
  return enough < 1 ? 1 : enough < kUpdatesAtOnce ? enough : kUpdatesAtOnce;
}
// Fewer lookups need no more than this or kMostSums, which a product's work space is larger than.
constexpr size_t update_workspace(int64_t tables, int64_t lookups, int64_t widest, size_t size_of_number) {
  if (tables == 0 || lookups <= kUpdatePart) return 0;
  const int64_t most = updates_together(lookups, widest);
  return static_cast<size_t>((tables < most ? tables : most) * sums_of_update(lookups, widest)) *
         size_of_number;
}
static_assert(kMostSums * sizeof(double) <= kProductWorkspace);

// ---- losses of a router (kernels/experts.cu) ----

// Of so many choices: the expert of each, and what it weighs.
constexpr size_t router_workspace(int64_t choices) {
  return static_cast<size_t>(choices) * (2 * sizeof(int32_t) + sizeof(double));
}

// ---- attention by cuDNN (attention.h) ----

struct AttentionSize {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, width = 0;
  bool lengths = false;       // whether samples have lengths of their own
  bool deterministic = true;  // backward with the same bits each time
  bool drops = false;         // some weights are dropped
};

// Of backward, the largest of what cuDNN's engines ask for: with the same bits each time, a 16-bit number for
// every query and key, both rounded up to Hopper's tiles; in any order, gradients of queries in f32 (some
// engines); and where heads share keys, gradients of keys and values for every head.
inline size_t cudnn_backward_workspace(const AttentionSize& size) {
  const auto tiles = [&](int64_t tile) { return (size.seq + tile - 1) / tile * tile; };
  const int64_t heads = size.batch * size.heads;
  const int64_t pairs = size.deterministic ? heads * tiles(64) * tiles(128) : 0;
  const int64_t queries = heads * size.seq * size.width;
  const int64_t shared = size.kv_heads == size.heads ? 0 : 2 * queries;
  const int64_t sums = size.deterministic ? 0 : 2 * queries;
  return static_cast<size_t>(2 * (pairs + shared + sums)) + kWorkspaceAlignment;
}

// With the same bits each time, that grows with the square of the positions. Backward then computes one group
// of samples after another, or of key heads of one sample with the query heads that share them: as many as
// need this much, but one key head of one sample at least. Forward has the same groups where weights are
// dropped, for each group has a mask of its own; without a mask groups change no bit.
constexpr size_t kAttentionGroupBytes = size_t{5} << 28;

struct AttentionGroup {
  int64_t samples = 0, kv_heads = 0;  // of one group at most
  bool operator==(const AttentionGroup&) const = default;
};

inline AttentionGroup attention_group(const AttentionSize& size) {
  if (!size.deterministic && !size.drops) return {size.batch, size.kv_heads};
  AttentionSize one = size;
  one.batch = one.kv_heads = 1;
  one.heads = size.heads / size.kv_heads;
  one.deterministic = true;
  const auto fit =
      std::max<int64_t>(static_cast<int64_t>(kAttentionGroupBytes / cudnn_backward_workspace(one)), 1);
  const auto evenly = [](int64_t all, int64_t most) {
    const int64_t groups = (all + most - 1) / most;
    return (all + groups - 1) / groups;
  };
  if (fit < size.kv_heads) return {1, evenly(size.kv_heads, fit)};
  return {evenly(size.batch, std::min(fit / size.kv_heads, size.batch)), size.kv_heads};
}

// Of one group.
inline AttentionSize attention_group_size(const AttentionSize& size) {
  const AttentionGroup group = attention_group(size);
  AttentionSize part = size;
  part.batch = group.samples;
  part.heads = size.heads / size.kv_heads * group.kv_heads;
  part.kv_heads = group.kv_heads;
  return part;
}

// Arguments of a call in device memory, besides its tensors: the two numbers of dropout, followed, with
// lengths, how many queries each sample has.
constexpr size_t kDropoutNumbers = kWorkspaceAlignment;
inline size_t attention_inputs(int64_t batch, bool lengths) {
  return kDropoutNumbers +
         (lengths ? aligned_workspace(static_cast<size_t>(batch) * sizeof(int32_t)) : size_t{0});
}

// The work space of attention: cuDNN's own, the inputs of a call, a sum for each row and, if gradients may be
// added in any order, those of the queries in f32. Of the largest group.
inline size_t attention_workspace(const AttentionSize& whole) {
  const AttentionSize size = attention_group_size(whole);
  const size_t rows =
      aligned_workspace(static_cast<size_t>(size.batch * size.heads * size.seq) * sizeof(float));
  return aligned_workspace(cudnn_backward_workspace(size)) + attention_inputs(size.batch, size.lengths) +
         rows * (size.deterministic ? size_t{1} : static_cast<size_t>(1 + size.width));
}

}  // namespace trifold::cuda
