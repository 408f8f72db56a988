#include "plan/forecast/network.h"

#include <algorithm>
#include <cmath>

namespace trifold {

namespace {

// `ranks` ranks that are `stride` apart.
Ring ring_of(const Hardware& hardware, double ranks, double stride) {
  const double places = std::max(1.0, std::floor(hardware.devices_per_node / stride));
  return {ranks, std::min(ranks, places)};
}

}  // namespace

Ring tensor_ring(const Hardware& hardware, const Workload& work) { return ring_of(hardware, work.tensor, 1); }

Ring context_ring(const Hardware& hardware, const Workload& work) {
  return ring_of(hardware, work.context, work.tensor);
}

Ring expert_ring(const Hardware& hardware, const Workload& work) { return ring_of(hardware, work.expert, 1); }

Ring data_ring(const Hardware& hardware, const Workload& work) {
  return ring_of(hardware, work.data_ranks(), work.tensor);
}

Ring expert_data_ring(const Hardware& hardware, const Workload& work) {
  return ring_of(hardware, work.expert_data_ranks(), work.expert);
}

double gather_seconds(const Hardware& hardware, const Software& software, const Ring& ring, double bytes) {
  if (ring.ranks < 2) return 0;
  const double inside = hardware.nvlink_gbytes * 1e9 * hardware.nvlink_share;
  double speed = inside;
  if (ring.nodes() > 1) {
    const double adapters = software.adapters_per_collective > 0
                                ? std::min(software.adapters_per_collective, ring.in_node)
                                : ring.in_node;
    speed = std::min(inside, adapters * hardware.adapter_gbytes * 1e9 * hardware.network_share);
  }
  const double hops = (ring.ranks - ring.nodes()) * hardware.nvlink_latency +
                      (ring.nodes() > 1 ? ring.nodes() : 0) * hardware.network_latency;
  return (ring.ranks - 1) / ring.ranks * bytes / speed + hops * 1e-6;
}

double gather_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                      const HeldWeights& weights, double bytes_of_each) {
  const auto over = [&](const Ring& ring, double count) {
    return count > 0 ? gather_seconds(hardware, software, ring, count * bytes_of_each) : 0;
  };
  return over(data_ring(hardware, work), weights.dense) +
         over(expert_data_ring(hardware, work), weights.experts);
}

double message_seconds(const Hardware& hardware, const Workload& work, double bytes) {
  const double stride = work.tensor * work.context * work.data;
  if (stride * work.pipeline <= hardware.devices_per_node)
    return bytes / (hardware.nvlink_gbytes * 1e9 * hardware.nvlink_share) + hardware.nvlink_latency * 1e-6;
  return bytes / (hardware.adapter_gbytes * 1e9 * hardware.message_share) + hardware.network_latency * 1e-6;
}

}  // namespace trifold
