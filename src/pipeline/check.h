// Whether a plan is complete and in order.
#pragma once

#include <span>

#include "pipeline/action.h"

namespace trifold {

// Throws an Error that names the action unless the plan is complete and in order: each micro-batch goes
// forward once on each stage, then backward once (B, or I then W; the whole stage or each of its blocks once,
// last first), every reduction follows the last gradient of its block, and Step comes last.
void check_plan(const Plan& plan, int micros, std::span<const int> blocks);

}  // namespace trifold
