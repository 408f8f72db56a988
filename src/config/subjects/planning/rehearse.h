// What `trifold rehearse` runs of a mesh, and what it waits for.
#pragma once

#include <cstdint>

#include "config/fields/rehearse_config.h"
#include "config/options/option.h"
#include "config/options/problems.h"

namespace trifold {

constexpr int64_t kMostRehearsedSteps = 1'000'000;

// The options of every kind of run. Starts a group, which add_rehearsed_batch and add_rehearsed_ids continue.
void add_rehearsal(OptionTable& table, RehearseConfig& config);
// Options of language models, whose steps have micro-batches.
void add_rehearsed_batch(OptionTable& table, RehearseConfig& config);
// Options of recommenders, whose ranks exchange ids.
void add_rehearsed_ids(OptionTable& table, RehearseConfig& config);

// Checks that the ranks to rehearse are among `ranks`.
void check_rehearsed_ranks(const RehearseConfig& config, int64_t ranks, Problems& problems);

}  // namespace trifold
