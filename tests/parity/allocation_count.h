// Counts the allocations of all threads of a program. Linking allocation_count.cpp replaces the global operator new,
// all forms of which end in the two replaced there, and mmap, which core's Buffer uses (not where a sanitizer has an
// mmap of its own).
//
// It does not see malloc that is called directly, which no code of Trifold does. Allocations with a frame of
// oneDNN on the stack are left out: the library packs the factors of some products into memory that it
// allocates for each call, and there is no way to give it that memory.
#pragma once

#include <string>

namespace trifold::test {

void start_counting();
// The call stacks of the allocations since then, each with how often it came; "" when there were none.
std::string stop_counting();

}  // namespace trifold::test
