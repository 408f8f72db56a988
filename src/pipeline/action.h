// Action and Plan: a training step as data. A plan is made once, before anything is allocated; it can be
// printed, checked and simulated, and is then executed by one interpreter.
//
// The text form is that of PyTorch's pipeline schedules: "0F1" is forward of micro-batch 1 on stage 0, "0B1"
// its full backward, "0I1"/"0W1" the two halves of it, "0REDUCE_GRAD", "0STEP". An action on one block of a
// stage, not on the whole of it, ends in "@block": "0B1@3", "0REDUCE_GRAD@3". A row is one rank's actions,
// separated by commas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

enum class ActionKind : uint8_t {
  F,           // forward
  I,           // gradient with respect to the input
  W,           // gradient with respect to the weights
  B,           // I and W together
  ReduceGrad,  // start summing the gradients of a bucket over the data axis
  Step,        // finish the reductions, then update the weights
};

struct Action {
  static constexpr int kAll = -1;

  ActionKind kind;
  int stage = 0;
  int block = kAll;  // kAll: the whole stage
  int micro = kAll;  // kAll where the kind has no micro-batch
  bool operator==(const Action&) const = default;
};

using RankPlan = std::vector<Action>;  // one rank's actions in order
using Plan = std::vector<RankPlan>;    // [pipeline rank]

std::string to_string(const Action& action);
std::string to_string(const Plan& plan);  // one line a rank

// The inverse; an Error names the text that is not an action.
Action parse_action(std::string_view text);
Plan parse_plan(std::string_view text);

}  // namespace trifold
