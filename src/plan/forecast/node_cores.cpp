#include "plan/forecast/node_cores.h"

#include <algorithm>
#include <cmath>

namespace trifold {

RankCores rank_cores(const NodeCores& measured, const MeshConfig& mesh) {
  RankCores result;
  result.ranks = std::clamp(std::floor(measured.ranks), 1.0, std::max(1.0, static_cast<double>(mesh.ranks)));
  if (measured.node <= 0 || measured.rank <= 0) return result;
  const double fair = std::max(1.0, std::floor(measured.node / result.ranks));
  const double threads = mesh.threads_per_rank ? static_cast<double>(*mesh.threads_per_rank) : fair;
  // Threads in excess of the cores share them.
  result.ratio = std::min(threads, measured.node / result.ranks) / measured.rank;
  return result;
}

}  // namespace trifold
