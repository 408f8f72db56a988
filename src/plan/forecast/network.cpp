#include "plan/forecast/network.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trifold {

namespace {

// The ring of `ranks` ranks that are `stride` apart.
Ring ring_of(const Hardware& hardware, double ranks, double stride) {
  const double places = std::max(1.0, std::floor(hardware.devices_per_node / stride));
  return {ranks, std::min(ranks, places)};
}

}  // namespace

Ring ring_over(const Hardware& hardware, const MeshSizes& sizes, AxisSet axes) {
  constexpr std::array kDense{Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp};
  constexpr std::array kExperts{Axis::Etp, Axis::Ep, Axis::Edp, Axis::Pp};
  const bool of_experts = !(axes & AxisSet{Axis::Etp, Axis::Ep, Axis::Edp}).empty();
  double stride = 1;
  for (const Axis axis : of_experts ? kExperts : kDense) {
    if (axes.has(axis)) break;
    stride *= sizes[axis];
  }
  return ring_of(hardware, sizes.ranks(axes), stride);
}

Ring data_ring(const Hardware& hardware, const Workload& work) {
  return ring_of(hardware, work.data_ranks(), work.tensor);
}

Ring expert_data_ring(const Hardware& hardware, const Workload& work) {
  return ring_of(hardware, work.expert_data_ranks(), work.expert_ranks());
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

namespace {

// The ranks of one of `groups` equal groups of neighbours in a ring.
Ring group_of(const Ring& ring, double groups) {
  const double ranks = ring.ranks / groups;
  return {ranks, std::min(ring.in_node, ranks)};
}

// The ring of one rank of each group.
Ring across_groups(const Ring& ring, double groups) {
  return {groups, std::clamp(std::floor(ring.in_node * groups / ring.ranks), 1.0, groups)};
}

// Calls `seconds(ring, groups, count)` for the weights of each kind and returns the sum.
template <class Seconds>
double over_each_kind(const Hardware& hardware, const Workload& work, const HeldWeights& weights,
                      Seconds seconds) {
  const auto over = [&](const Ring& ring, double count) {
    return count > 0 ? seconds(ring, work.groups_among(ring.ranks), count) : 0;
  };
  return over(data_ring(hardware, work), weights.dense) +
         over(expert_data_ring(hardware, work), weights.experts);
}

}  // namespace

double gather_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                      const HeldWeights& weights, double bytes_of_each) {
  return over_each_kind(hardware, work, weights, [&](const Ring& ring, double groups, double count) {
    return gather_seconds(hardware, software, group_of(ring, groups), count * bytes_of_each);
  });
}

double scatter_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                       const HeldWeights& weights, double bytes_of_each) {
  return over_each_kind(hardware, work, weights, [&](const Ring& ring, double groups, double count) {
    const double bytes = count * bytes_of_each;
    const Ring group = group_of(ring, groups);
    return gather_seconds(hardware, software, group, bytes) +
           2 * gather_seconds(hardware, software, across_groups(ring, groups), bytes / group.ranks);
  });
}

double message_seconds(const Hardware& hardware, const Workload& work, double bytes) {
  const double stride = work.tensor * work.context * work.data;
  if (stride * work.pipeline <= hardware.devices_per_node)
    return bytes / (hardware.nvlink_gbytes * 1e9 * hardware.nvlink_share) + hardware.nvlink_latency * 1e-6;
  return bytes / (hardware.adapter_gbytes * 1e9 * hardware.message_share) + hardware.network_latency * 1e-6;
}

}  // namespace trifold
