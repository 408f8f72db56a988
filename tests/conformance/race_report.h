// The findings of the emulation's race check as text with source lines.
#pragma once

#include <string>
#include <vector>

#include "cuda_emulation/race_check.h"

namespace trifold::conformance {

// One line each, "race in norm_kernel<float>, shared memory at 0x...: thread 0 of block 0 writes it
// (group.cuh:45), thread 32 of block 0 reads it (...), and nothing orders the two"; empty if there are none. Lines come
// from addr2line; without it instructions are given by address.
std::string report(const std::vector<cuda::emulation::Race>& races);

}  // namespace trifold::conformance
