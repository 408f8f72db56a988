// MXFP4, a format of weights (OCP Microscaling Formats 1.0), as files of gpt-oss have it. A tensor [..., columns] is two
// tensors of bytes:
//
//   <name>_blocks  [..., columns / 32, 16]  two elements of 4 bits (e2m1) a byte, the one of the lower bits first
//   <name>_scales  [..., columns / 32]      the exponent of each block of 32 elements, plus 127 (e8m0)
//
// An element's value is its e2m1 value, one of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, times 2^exponent. bf16
// holds it exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/float16.h"

namespace trifold {

constexpr int64_t kMxfp4Block = 32;                    // elements with one exponent
constexpr int64_t kMxfp4BlockBytes = kMxfp4Block / 2;  // bytes of these elements

// Writes the elements of whole blocks; values has kMxfp4Block elements for each scale, and blocks kMxfp4BlockBytes
// bytes. Returns false if some value is not a finite number of bf16: a scale of 255 stands for NaN, and the largest
// others can overflow.
bool dequantise_mxfp4(std::span<Bfloat16> values, std::span<const std::byte> blocks,
                      std::span<const std::byte> scales);

}  // namespace trifold
