// Checks of learning rate, optimizer and length of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems);
// A value that is not the default counts as given; the command line distinguishes the two (read_command.h).
void check_optimizer(const OptimizerConfig& optimizer, Problems& problems);
// Rejects --check-overlap where nothing overlaps.
void check_overlap(const LogConfig& log, const MeshConfig& mesh, Problems& problems);
void check_length(const BatchConfig& batch, Problems& problems);

// "--adam-beta1 has no effect with --optimizer sgd: ..." for an option that only other optimizers use, else nullopt.
std::optional<Problem> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer);

}  // namespace trifold
