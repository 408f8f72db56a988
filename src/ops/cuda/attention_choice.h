// Selects the calls of attention on a device that cuDNN computes; the plain kernels compute the others. Both directions
// of one attention get the same answer, because they share their dropout mask.
#pragma once

#include <cstddef>

#include "ops/ops.h"

namespace trifold::cuda {

// The limits of cuDNN's engines: 16 bits, and heads of whole packs; backward needs more than one position.
// The graphs here take all positions of a sequence: of cut ones (context parallelism) every position has its own end of
// the keys it sees, and outputs are merged in f32. Documents with dropout are left to the plain kernels.
inline bool is_for_cudnn(const Attention& attention, DType dtype) {
  return accumulate_type(dtype) != dtype && attention.head_dim % 8 == 0 && attention.head_dim <= 256 &&
         attention.seq > 1 && (attention.first_keys.data == nullptr || attention.dropout.probability == 0) &&
         attention.rows.rows() == 0;
}

// The limits of its engines on some generations of devices (`major` of the compute capability), as version
// 9.19 reports them for described devices (tests/cuda/attention_graph_test.cpp): backward of heads wider than
// 128 exists only on Hopper (forward could do without this limit, but must give the same answer), and so do masks of
// documents, which were asked of heads of 64, 128 and 256; dropout does not exist on Blackwell's data center cards.
inline bool is_missing_in_cudnn(const Attention& attention, int major) {
  constexpr int kHopper = 9, kBlackwell = 10;
  const bool has_documents = attention.first_keys.data != nullptr;
  if (has_documents && attention.head_dim != 64 && attention.head_dim != 128 && attention.head_dim != 256)
    return true;
  const bool of_hopper = attention.head_dim > 128 || has_documents;
  return (of_hopper && major != kHopper) || (attention.dropout.probability > 0 && major == kBlackwell);
}

// Versions (CUDNN_VERSION: 91900 is 9.19.0) whose results may be wrong.
//   - Before 9.26, on Hopper: backward processes keys in tiles of 128 and treats the second half of a
//     half-empty last tile as keys, unless a mask hides them. In rows whose log-sum-exp is below -88 the
//     gradients become NaN. (NVIDIA/cudnn-frontend #628, pytorch #196678)
//   - Up to 9.15.0: in CUDA graphs, backward with a partial last tile reads beyond the end of its tensors.
//     (release notes of cudnn-frontend 1.16)
//   - Before 9.10, with lengths: backward needs their mask a second time, after the log-sum-exp, as
//     cudnn-frontend builds it for these versions. The graphs here do not.
//   - Before 9.19, with documents: not known to be wrong, but engines were asked for their masks from 9.19 on.
// Lengths probably avoid the first two, because their mask checks every key, but this is unproven.
inline bool is_wrong_in_cudnn(const Attention& attention, size_t version) {
  if (version < 91000 && attention.lengths.data != nullptr) return true;
  if (version < 91900 && attention.first_keys.data != nullptr) return true;
  if (version <= 91500 && attention.seq % 128 != 0) return true;
  return version < 92600 && !attention.causal && attention.seq % 128 == 64;
}

}  // namespace trifold::cuda
