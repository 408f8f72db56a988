// The collective calls of a Communicator.
#pragma once

#include <cstdint>
#include <string_view>

namespace trifold {

enum class CallKind : uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Split, Barrier };

// "all_reduce"
std::string_view name_of(CallKind kind);

}  // namespace trifold
