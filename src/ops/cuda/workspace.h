// Sizes of the device memory that operations need in addition to their tensors. A queue has one workspace, as large as
// the largest request (DeviceQueue::workspace); plans count it without a device. All sizes are in bytes. Does not
// include CUDA's headers.
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

constexpr size_t kProductWorkspace = size_t{32} << 20;  // what cuBLAS uses on Hopper

// A factor that is rounded to 8 bits (fp8.h) needs, in addition to the product's workspace, its scale, scratch to
// compute the scale, and the codes.
constexpr size_t kFp8Scratch = 4096;
constexpr size_t fp8_factor_workspace(int64_t elements) {
  return kWorkspaceAlignment + kFp8Scratch + aligned_workspace(static_cast<size_t>(elements));
}

// A factor [extent, depth] with scales of blocks (fp8_blocks.h): its codes, and at most a scale and a sum for 128
// elements along `depth`.
constexpr size_t fp8_block_factor_workspace(int64_t extent, int64_t depth) {
  constexpr int64_t kBlock = 128;
  const int64_t scales = extent * ((depth + kBlock - 1) / kBlock);
  return aligned_workspace(static_cast<size_t>(extent * depth)) +
         aligned_workspace(2 * static_cast<size_t>(scales) * sizeof(float));
}

// ---- sorting of lookups (kernels/sort.cuh) ----

constexpr int64_t kSortTile = 2048;      // keys that a block counts
constexpr int64_t kSortDigits = 512;     // values of a digit
constexpr size_t kSortListsAtOnce = 32;  // lists in one launch

// Holds, for the lists of one launch, the counts of each digit in each tile and in all tiles, twice. `keys` are the
// lengths of the lists in the order in which they are sorted.
inline size_t sort_workspace(std::span<const int64_t> keys) {
  int64_t most = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kSortListsAtOnce) {
    int64_t tiles = 0;
    for (size_t i = begin; i < keys.size() && i < begin + kSortListsAtOnce; ++i)
      tiles += (keys[i] + kSortTile - 1) / kSortTile + 1;
    most = tiles > most ? tiles : most;
  }
  return static_cast<size_t>(2 * most * kSortDigits) * sizeof(uint32_t);
}

// ---- gradients of rows by id (kernels/embedding.cu) ----

// Holds `ids` ids with their positions, twice, and the workspace for sorting them.
inline size_t embedding_workspace(int64_t ids) {
  return static_cast<size_t>(2 * ids) * sizeof(uint64_t) + sort_workspace({&ids, 1});
}

// ---- updates of rows (kernels/row_updates.cu) ----

constexpr int64_t kUpdatesAtOnce = 32;           // tables in one launch
constexpr int64_t kUpdatePart = 256;             // lookups that are summed together if a row has more
constexpr int64_t kMostSums = int64_t{2} << 20;  // elements of all tables of a launch together

// Elements of sums for one table: two rows for each part. `lookups` and `widest` are the largest numbers of lookups and
// of columns of any table in an update.
constexpr int64_t sums_of_update(int64_t lookups, int64_t widest) {
  return (lookups + kUpdatePart - 1) / kUpdatePart * 2 * widest;
}
// The number of tables per launch: as many as fit kMostSums, but at least one.
constexpr int64_t updates_together(int64_t lookups, int64_t widest) {
  const int64_t enough = kMostSums / (sums_of_update(lookups, widest) + 1);
  return enough < 1 ? 1 : enough < kUpdatesAtOnce ? enough : kUpdatesAtOnce;
}
// The larger of this and the workspace of products is enough for any number of lookups up to `lookups`: fewer lookups
// need at most this or kMostSums.
constexpr size_t update_workspace(int64_t tables, int64_t lookups, int64_t widest, size_t size_of_number) {
  if (tables == 0 || lookups <= kUpdatePart) return 0;
  const int64_t most = updates_together(lookups, widest);
  return static_cast<size_t>((tables < most ? tables : most) * sums_of_update(lookups, widest)) *
         size_of_number;
}
static_assert(kMostSums * sizeof(double) <= kProductWorkspace);

// ---- losses of a router (kernels/experts.cu), and choices beyond a capacity (kernels/choices.cu) ----

// Holds the expert and the weight, or a key and an index, of each choice.
constexpr size_t router_workspace(int64_t choices) {
  return static_cast<size_t>(choices) * (2 * sizeof(int32_t) + sizeof(double));
}

// ---- attention by cuDNN (attention.h) ----

struct AttentionSize {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, width = 0;
  bool lengths = false;       // Attention::lengths is set
  bool deterministic = true;  // backward is deterministic
  bool drops = false;         // dropout's probability is not 0
  int64_t keys = 0;           // keys of a block (attention_blocks.h) with `seq` queries; 0: seq
};

// The workspace of backward, the maximum over cuDNN's engines. If deterministic, 16 bits for every pair of query and
// key, both rounded up to Hopper's tiles; otherwise, gradients of queries in f32 (some engines). If heads
// share keys, also gradients of keys and values for every head.
inline size_t cudnn_backward_workspace(const AttentionSize& size) {
  const auto tiles = [](int64_t rows, int64_t tile) { return (rows + tile - 1) / tile * tile; };
  const int64_t heads = size.batch * size.heads;
  const int64_t keys = size.keys > 0 ? size.keys : size.seq;
  const int64_t pairs = size.deterministic ? heads * tiles(size.seq, 64) * tiles(keys, 128) : 0;
  const int64_t queries = heads * size.seq * size.width;
  const int64_t shared = size.kv_heads == size.heads ? 0 : 2 * heads * keys * size.width;
  const int64_t sums = size.deterministic ? 0 : 2 * queries;
  return static_cast<size_t>(2 * (pairs + shared + sums)) + kWorkspaceAlignment;
}

// The deterministic workspace grows with the square of seq. Backward therefore divides a call into groups of samples
// or, if a single sample is too large, of key heads with their query heads. A group needs at most this workspace, or is
// one key head of one sample. With dropout forward has the same groups, because each group has its own mask; without
// dropout groups do not change any bit.
constexpr size_t kAttentionGroupBytes = size_t{5} << 28;

struct AttentionGroup {
  int64_t samples = 0, kv_heads = 0;  // maximum in a group
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

// The size of the largest group.
inline AttentionSize attention_group_size(const AttentionSize& size) {
  const AttentionGroup group = attention_group(size);
  AttentionSize part = size;
  part.batch = group.samples;
  part.heads = size.heads / size.kv_heads * group.kv_heads;
  part.kv_heads = group.kv_heads;
  return part;
}

// The arguments of a call in device memory, in addition to its tensors: seed and offset of dropout and, with
// lengths, the number of queries of each sample.
constexpr size_t kDropoutNumbers = kWorkspaceAlignment;
inline size_t attention_inputs(int64_t batch, bool lengths) {
  return kDropoutNumbers +
         (lengths ? aligned_workspace(static_cast<size_t>(batch) * sizeof(int32_t)) : size_t{0});
}

// The workspace of attention for its largest group: cuDNN's workspace, the arguments of a call, a sum for each row and,
// if not deterministic, the gradients of queries in f32.
inline size_t attention_workspace(const AttentionSize& whole) {
  const AttentionSize size = attention_group_size(whole);
  const size_t rows =
      aligned_workspace(static_cast<size_t>(size.batch * size.heads * size.seq) * sizeof(float));
  return aligned_workspace(cudnn_backward_workspace(size)) + attention_inputs(size.batch, size.lengths) +
         rows * (size.deterministic ? size_t{1} : static_cast<size_t>(1 + size.width));
}

}  // namespace trifold::cuda
