#include "run/device.h"

#include <algorithm>

#include "core/error.h"
#include "ops/narrow.h"

namespace trifold {

namespace {

bool on_cuda(ComputeDevice device) { return device == ComputeDevice::Cuda; }

}  // namespace

ProductTuning& products_of(const Communicator& world) {
  return cuda_products(world.backend() == "nccl" ? device_index(world) : 0);
}

const OpTable& ops_of(const MeshConfig& config, const Communicator& world, const PrecisionConfig& precision) {
  const bool narrow = has_narrow_factors(precision);
  if (narrow && !on_cuda(config.device)) return narrow_cpu_ops();
  return ops_of(config.device, world,
                {.fp8 = precision.fp8,
                 .fp8_blocks = narrow,
                 .deterministic = !config.no_deterministic_mode,
                 .tf32 = precision.tf32});
}

const OpTable& ops_of(ComputeDevice device, const Communicator& world, const CudaTable& which) {
  if (!on_cuda(device)) return cpu_ops();
  return cuda_ops(world.backend() == "nccl" ? device_index(world) : 0, which);
}

const OpTable& ops_of_threads(const MeshConfig& config) {
  return on_cuda(config.device) ? cuda_ops(0) : cpu_ops();
}

Stream::Mode comm_mode(const Communicator& world) {
  return world.enqueues() ? Stream::Mode::Inline : Stream::Mode::Worker;
}

int device_index(const Communicator& world) {
  const std::span<const int> nodes = world.world_nodes();
  const auto me = static_cast<size_t>(world.rank());
  if (nodes.size() <= me) return 0;
  const auto before = std::count(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(me), nodes[me]);
  const int devices = cuda_device_count();
  check(before < devices,
        "rank {} is number {} of its node, which has {} CUDA device{}: start as many ranks as there are "
        "devices (ranks that share one run as threads: --ranks without mpirun)",
        me, before + 1, devices, devices == 1 ? "" : "s");
  return static_cast<int>(before);
}

void check_device(const MeshConfig& config) {
  if (on_cuda(config.device)) static_cast<void>(cuda_device_count());
}

}  // namespace trifold
