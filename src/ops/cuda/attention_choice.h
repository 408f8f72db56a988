// Which attention on a device is cuDNN's, and which the plain kernels'. Both directions of one attention get
// the same answer, for they share their dropout mask.
#pragma once

#include <cstddef>

#include "ops/ops.h"

namespace trifold::cuda {

// What cuDNN's engines take: 16 bits, heads of whole packs; backward wants more than one position. The graphs
// here have no mask for documents.
inline bool is_for_cudnn(const Attention& how, DType dtype) {
  return accumulate_type(dtype) != dtype && how.head_dim % 8 == 0 && how.head_dim <= 256 && how.seq > 1 &&
         how.first_keys.data == nullptr;
}

// What its engines do not take on devices of a generation (`major`: of the compute capability), as those of
// 9.19 say for devices that are described to them (tests/cuda/attention_graph_test.cpp): backward of heads
// wider than 128 is Hopper's alone (forward has the same answer everywhere, though its engines would), and on
// Blackwell's data center cards nothing drops weights.
inline bool is_missing_in_cudnn(const Attention& how, int major) {
  constexpr int kHopper = 9, kBlackwell = 10;
  return (how.head_dim > 128 && major != kHopper) || (how.dropout.probability > 0 && major == kBlackwell);
}

// Versions (CUDNN_VERSION: 91900 is 9.19.0) whose results for it may be wrong.
//   - Before 9.26, on Hopper: backward walks keys in tiles of 128 and takes the second half of a last tile
//     that is half empty for keys, unless a mask hides them. Where a row's log-sum-exp is below -88 the
//     gradients become NaN. (NVIDIA/cudnn-frontend #628, pytorch #196678)
//   - Up to 9.15.0: backward with a last tile that is not full reads behind its tensors, in CUDA graphs.
//     (release notes of cudnn-frontend 1.16)
//   - Before 9.10, with lengths: backward wants their mask a second time, behind the log-sum-exp, as
//     cudnn-frontend builds it there. The graphs here do not.
// That lengths hide the first two is likely, for their mask asks every key, but nobody has shown it.
inline bool is_wrong_in_cudnn(const Attention& how, size_t version) {
  if (version < 91000 && how.lengths.data != nullptr) return true;
  if (version <= 91500 && how.seq % 128 != 0) return true;
  return version < 92600 && !how.causal && how.seq % 128 == 64;
}

}  // namespace trifold::cuda
