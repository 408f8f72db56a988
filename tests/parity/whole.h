// How much a parity test runs. The programs parity_whole_*, of the label long, are compiled with TRIFOLD_WHOLE and run
// all cases; the programs that every run of the tests starts run a selection in which each value of each axis (number
// of ranks, schedule, type, recomputation, ZeRO stage, ...) occurs, over fewer steps.
#pragma once

namespace trifold::test {

#ifdef TRIFOLD_WHOLE
inline constexpr bool kWhole = true;
#else
inline constexpr bool kWhole = false;
#endif

}  // namespace trifold::test
