// Compares every rank of a small run with the same rank rehearsed alone.
#pragma once

#include "config/fields/config.h"

namespace trifold::test {

// Which parts of a rank may depend on data from its peers.
enum class Depends {
  OnNothing,
  OnRows,  // experts: the rows that arrive, so the sizes of their operations and exchanges
};

// Trains two steps of `config` on thread ranks, and rehearses each of them alone. Adds test failures unless each rank
// alone has the memory of the real one, by category and to the byte, and does the same: actions, operations, and calls of
// each communicator, in the same order. Expects that both update the weights.
void expect_same_rehearsed(const PretrainConfig& config, Depends depends = Depends::OnNothing);

}  // namespace trifold::test
