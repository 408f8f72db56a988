// The mesh on which a parity test runs a small configuration, and how the run is executed there.
#pragma once

#include <string>

#include "support/training.h"

namespace trifold::test {

struct RunMesh {
  int dp = 1, tp = 1, pp = 1, cp = 1;
  bool sequence_parallel = false;
  int zero = 0;
  const char* schedule = "1f1b";  // if there are several stages
  int chunks = 1;                 // stages of a pipeline rank
  RecomputeGranularity recompute = RecomputeGranularity::None;
  ContextExchange exchange = ContextExchange::AllGather;  // if there are several context ranks
  int head_parts = 1;                                     // parts that cut the output layer

  PretrainConfig of(const PretrainConfig& base) const {
    PretrainConfig config = on_mesh(base, dp, tp, pp, cp);
    if (pp > 1) config = scheduled(config, schedule, chunks);
    if (cp > 1) config.mesh.cp_comm_type = exchange;
    config.mesh.sequence_parallel = sequence_parallel;
    config.mesh.recompute_granularity = recompute;
    config.mesh.pipeline_vocab_parts = head_parts;
    config.zero.zero_stage = zero;
    return config;
  }
  std::string name() const {
    return fmt::format("dp {} tp {}{} pp {} cp {} {} zero {} {} of {} recompute {} head in {}", dp, tp,
                       sequence_parallel ? " with sequences" : "", pp, cp, name_of(exchange), zero, schedule,
                       chunks, static_cast<int>(recompute), head_parts);
  }
};

}  // namespace trifold::test
