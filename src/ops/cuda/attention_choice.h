// Decides which calls of attention cuDNN computes on a device; the plain kernels compute the others. Forward and
// backward of a call get the same answer, because they must have the same dropout mask.
#pragma once

#include <cstddef>

#include "ops/ops.h"

namespace trifold::cuda {

// Whether all runs are whole tiles of 128 positions.
inline bool is_whole_runs(const SequenceRows& rows) {
  for (const RowRun& run : rows.runs())
    if (run.begin % 128 != 0 || run.count % 128 != 0) return false;
  return true;
}
// Whether a call for context-parallel ranks can be computed in blocks.
inline bool is_in_blocks(const Attention& attention) {
  return attention.rows.rows() > 0 && attention.lengths.data == nullptr &&
         attention.first_keys.data == nullptr && attention.dropout.probability == 0 &&
         attention.seq % 128 == 0 && is_whole_runs(attention.rows) && is_whole_runs(attention.key_rows);
}
// Whether the graphs and cuDNN's engines support the call: 16-bit types, head_dim a multiple of 8, more than one
// position (for backward), and no documents with dropout. Context parallelism by rows, in blocks of runs of positions
// (attention_blocks.h), has neither lengths, nor documents, nor dropout, and runs of whole tiles of 128 positions, in
// which is_wrong_in_cudnn finds nothing.
inline bool is_for_cudnn(const Attention& attention, DType dtype) {
  return accumulate_type(dtype) != dtype && attention.head_dim % 8 == 0 && attention.head_dim <= 256 &&
         attention.seq > 1 && (attention.first_keys.data == nullptr || attention.dropout.probability == 0) &&
         (attention.rows.rows() == 0 || is_in_blocks(attention)) && attention.left < 0 &&
         attention.right < 0 && attention.soft_cap == 0;
}

// Whether cuDNN has no engine for the call on devices of compute capability `major`.x, as version 9.19 reports for
// described devices (tests/cuda/attention_graph_test.cpp). Only Hopper has backward for heads wider than 128 (forward
// exists elsewhere, but must get the same answer) and masks of documents, which were tested with head_dim 64, 128 and
// 256. Blackwell's data center cards have no dropout.
inline bool is_missing_in_cudnn(const Attention& attention, int major) {
  constexpr int kHopper = 9, kBlackwell = 10;
  const bool has_documents = attention.first_keys.data != nullptr;
  if (has_documents && attention.head_dim != 64 && attention.head_dim != 128 && attention.head_dim != 256)
    return true;
  const bool of_hopper = attention.head_dim > 128 || has_documents;
  return (of_hopper && major != kHopper) || (attention.dropout.probability > 0 && major == kBlackwell);
}

// Whether this version of cuDNN (CUDNN_VERSION: 91900 is 9.19.0) may compute the call wrongly.
//   - Before 9.26, on Hopper: backward processes keys in tiles of 128 and treats the second half of a
//     half-empty last tile as keys, unless a mask hides them. In rows whose log-sum-exp is below -88 the
//     gradients become NaN. (NVIDIA/cudnn-frontend #628, pytorch #196678)
//   - Up to 9.15.0: in CUDA graphs, backward with a partial last tile reads beyond the end of its tensors.
//     (release notes of cudnn-frontend 1.16)
//   - Before 9.10, with lengths: backward must apply their mask again after the log-sum-exp, as
//     cudnn-frontend does for these versions. The graphs here do not.
//   - Before 9.19, with documents: not known to be wrong, but tested only from 9.19 on.
// Lengths probably avoid the first two, because their mask checks every key, but this is unproven.
inline bool is_wrong_in_cudnn(const Attention& attention, size_t version) {
  if (version < 91000 && attention.lengths.data != nullptr) return true;
  if (version < 91900 && attention.first_keys.data != nullptr) return true;
  if (version <= 91500 && attention.seq % 128 != 0) return true;
  return version < 92600 && !attention.causal && attention.seq % 128 == 64;
}

}  // namespace trifold::cuda
