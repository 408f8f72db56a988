// StepMarks: a function that is called at the begin and end of each part of a training step, on the thread that runs
// it, to measure steps and to test that communication overlaps with computation. Optional.
#pragma once

#include <array>
#include <functional>
#include <string_view>

namespace trifold {

enum class StepPart {
  Fetch,            // a batch is read, its ids are exchanged and sorted: before the step that uses it
  Lookups,          // lookups in this rank's shards and replicated tables
  Vectors,          // all-to-all of the looked-up vectors
  Bottom,           // bottom MLP
  Top,              // interaction, top MLP, loss, and their backward down to the features
  Gradients,        // all-to-all of the vectors' gradients
  WeightGradients,  // weight gradients of the top MLP, and backward of the bottom MLP
  Update,           // update of touched rows
  DenseUpdate,      // the remaining sums of the MLPs' gradients, and their optimizer
};

inline constexpr std::array<std::string_view, 9> kStepPartNames = {
    "fetch",     "lookups",          "vectors", "bottom",      "top",
    "gradients", "weight gradients", "update",  "dense update"};

using StepMarks = std::function<void(StepPart part, bool begins)>;

}  // namespace trifold
