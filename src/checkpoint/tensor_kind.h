// The kind of a stored tensor is the first part of its name "<kind>/<parameter>" (checkpoint/writer.h). Weights have
// the kind "param"; all other kinds are optimizer state.
#pragma once

#include <string_view>

namespace trifold {

inline constexpr std::string_view kWeightKind = "param";
// Exponential averages of weights (--ema), stored with the optimizer's state.
inline constexpr std::string_view kAverageKind = "ema";

inline std::string_view kind_of_tensor(std::string_view name) { return name.substr(0, name.find('/')); }
inline bool is_weight(std::string_view tensor_name) { return kind_of_tensor(tensor_name) == kWeightKind; }

}  // namespace trifold
