#include "rehearse/alone.h"

#include <algorithm>

#include "core/thread_pool.h"

namespace trifold {

void take_cores(MeshConfig& mesh) {
  if (mesh.threads_per_rank || mesh.device == ComputeDevice::Cuda) return;
  mesh.threads_per_rank = std::max(1, available_cores() / mesh.ranks_per_node.value_or(1));
}

void leave_out_comparisons(CheckpointConfig& checkpoint, LogConfig& log, std::vector<std::string>& notes) {
  if (checkpoint.check_replicas.value_or(0) > 0)
    notes.emplace_back("--check-replicas is not done: there are no other copies to compare with");
  checkpoint.check_replicas.reset();
  if (log.check_overlap > 0)
    notes.emplace_back(
        "--check-overlap is not done: what arrives in a repeated step is other random numbers");
  log.check_overlap = 0;
}

}  // namespace trifold
