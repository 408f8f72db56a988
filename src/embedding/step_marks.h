// StepMarks: called when the parts of a training step begin and end, on the thread that does them: to measure a
// step, and to see that what travels between ranks hides behind what is computed. Without one nothing is
// called.
#pragma once

#include <array>
#include <functional>
#include <string_view>

namespace trifold {

enum class StepPart {
  Fetch,            // a batch is read, its ids are sent and sorted: before the step that uses it
  Lookups,          // in the shards and copies of this rank
  Vectors,          // all to all of what was looked up
  Bottom,           // bottom MLP
  Top,              // interaction, top MLP, loss, and the backward of these down to the features
  Gradients,        // all to all of the vectors' gradients
  WeightGradients,  // of the top, and the bottom's backward
  Update,           // of touched rows
  DenseUpdate,      // sums of the MLPs' gradients that are not done yet, and their optimizer
};

inline constexpr std::array<std::string_view, 9> kStepPartNames = {
    "fetch",     "lookups",          "vectors", "bottom",      "top",
    "gradients", "weight gradients", "update",  "dense update"};

using StepMarks = std::function<void(StepPart part, bool begins)>;

}  // namespace trifold
