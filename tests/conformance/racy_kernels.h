// Kernels that lack a barrier, each with a correct variant, for tests of the race check.
#pragma once

#include <cstdint>

#include "core/float16.h"

namespace trifold::conformance {

// `right` selects the correct variant. All have blocks of 64 threads.

// to[0] = the sum of from[0..64), through shared memory; the mistake: no __syncthreads before the sum.
void sum_through_shared(bool right, float* to, const float* from);
// to[i] = from[i ^ 1], through shared memory within a warp; the mistake: a shuffle in place of __syncwarp.
void swap_neighbours(bool right, float* to, const float* from);
// A tile of shared memory is filled twice; the mistake: threads still read it when the second fill begins.
void fill_twice(bool right, float* to, const float* from);
// Three blocks; the mistake: all write to[0..64).
void one_place_for_all_blocks(bool right, float* to);
// All threads write the same number to to[0]; in the right variant only the first does.
void everyone_writes(bool right, float* to);
// Adds 1 to a counter in shared memory; the mistake: an ordinary addition.
void count_threads(bool right, int64_t* to);
// Every thread writes its own byte and, after a barrier, reads the words of others: no mistake. `right` false has no
// barrier.
void bytes_of_words(bool right, uint8_t* to);

// One warp sums two boxes of f32 that the block's other warp copies, one after the other, to the same memory:
// to[32] = the sums of the columns of from [2, 8, 32] and 1, which the other warp passes on.
enum class BoxMistake {
  None,
  LateWaitForBox,   // the sums do not wait for the copy
  NoWaitForReader,  // a copy waits for the copy before, not for the sums
  EarlyArrival,     // the lane that arrives does not wait for the warp's others
  TooFewThreads,    // the barrier before the 1 is read is of the reading warp alone
};
void sum_boxes(BoxMistake mistake, float* to, const float* from);
// A warpgroup multiplies two boxes of bf16, [2, 64, 64], which another warp copies to the same memory; the mistake: it says
// that the first is free before its product has ended.
void multiply_boxes(bool right, float* to, const Bfloat16* from);

}  // namespace trifold::conformance
