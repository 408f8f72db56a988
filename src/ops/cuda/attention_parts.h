// Parts of a call of attention, which cuDNN computes one after another (attention_group of workspace.h): groups of
// samples, or of heads of a sample. A part reads and writes its elements of the call's tensors in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cuda/workspace.h"

namespace trifold::cuda {

struct AttentionPart {
  int64_t samples = 0, heads = 0, kv_heads = 0;
  int64_t sample = 0, head = 0, kv_head = 0;  // index of the first sample, query head and key head
};

inline std::vector<AttentionPart> attention_parts(const AttentionSize& whole, const AttentionGroup& group) {
  const int64_t shared = whole.heads / whole.kv_heads;
  std::vector<AttentionPart> parts;
  for (int64_t sample = 0; sample < whole.batch; sample += group.samples)
    for (int64_t head = 0; head < whole.kv_heads; head += group.kv_heads) {
      const int64_t kv_heads = std::min(group.kv_heads, whole.kv_heads - head);
      parts.push_back({std::min(group.samples, whole.batch - sample), kv_heads * shared, kv_heads, sample,
                       head * shared, head});
    }
  return parts;
}

inline std::vector<AttentionPart> attention_parts(const AttentionSize& whole) {
  return attention_parts(whole, attention_group(whole));
}

// Offsets of a part in the call's tensors, in elements: `query`, `key` and `value` in the packed projections [batch *
// seq, (heads + 2 kv_heads) * width], `out` in the output [batch * seq, heads * width], and `rows` in per-row values
// [batch, heads, seq].
struct PartOffsets {
  PartOffsets(const AttentionSize& whole, const AttentionPart& part) {
    const int64_t row = (whole.heads + 2 * whole.kv_heads) * whole.width;
    query = part.sample * whole.seq * row + part.head * whole.width;
    key = part.sample * whole.seq * row + (whole.heads + part.kv_head) * whole.width;
    value = key + whole.kv_heads * whole.width;
    out = (part.sample * whole.seq * whole.heads + part.head) * whole.width;
    rows = (part.sample * whole.heads + part.head) * whole.seq;
  }
  int64_t query = 0, key = 0, value = 0, out = 0, rows = 0;
};

}  // namespace trifold::cuda
