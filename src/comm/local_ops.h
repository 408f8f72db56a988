// The two operations of an OpTable that reductions need.
#pragma once

#include "ops/ops.h"

namespace trifold {

const OpTable& local_ops();

}  // namespace trifold
