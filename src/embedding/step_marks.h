// StepMarks: called at the begin and end of the parts of a training step, on the thread that runs them, to
// measure a step, and to check that communication overlaps with computation. Without one, nothing is called.
#pragma once

#include <array>
#include <functional>
#include <string_view>

namespace trifold {

enum class StepPart {
  Fetch,            // a batch is read, its ids are exchanged and sorted: before the step that uses it
  Lookups,          // in the shards and copies of this rank
  Vectors,          // all-to-all of the looked-up vectors
  Bottom,           // bottom MLP
  Top,              // interaction, top MLP, loss, and their backward down to the features
  Gradients,        // all-to-all of the vectors' gradients
  WeightGradients,  // of the top, and the bottom's backward
  Update,           // of touched rows
  DenseUpdate,      // the remaining sums of the MLPs' gradients, and their optimizer
};

inline constexpr std::array<std::string_view, 9> kStepPartNames = {
    "fetch",     "lookups",          "vectors", "bottom",      "top",
    "gradients", "weight gradients", "update",  "dense update"};

using StepMarks = std::function<void(StepPart part, bool begins)>;

}  // namespace trifold
