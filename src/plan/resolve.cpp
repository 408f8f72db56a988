#include "plan/resolve.h"

#include "core/error.h"
#include "plan/forecast/kept_activations.h"

namespace trifold {

namespace {

// Rejects options that only Trifold supports. A search may have --memory-limit: it leaves out layouts that do not fit.
void check_described_memory(const PlanConfig& config, const Software& software) {
  if (!software.describes_memory()) return;
  const MeshConfig& mesh = config.run.mesh;
  const ModelConfig& model = config.run.model;
  if (model.num_experts || model.multi_latent_attention || model.mtp_num_layers > 0)
    bad_input(
        "--assume activations describes dense layers: leave it out for a model with experts, latent attention or "
        "--mtp-num-layers");
  if (mesh.cpu_offloading_num_layers > 0)
    bad_input(
        "--assume activations describes a program that keeps all of them on its device: leave out "
        "--cpu-offloading-num-layers {}",
        mesh.cpu_offloading_num_layers);
  if (mesh.memory_limit && !config.search)
    bad_input(
        "--memory-limit {} limits runs of Trifold, and --assume activations describes another program: leave one out",
        *mesh.memory_limit);
}

// A plan of scales of blocks counts the bytes of each pass, so the average does not enter it.
void check_rounding(const PrecisionConfig& precision, const std::string& assignment) {
  if (has_narrow_factors(precision) && assignment.starts_with("rounding-bytes="))
    bad_input(
        "--hardware-set {} has no effect with --fp8-recipe blockwise, whose passes are counted one by one: leave it out, "
        "or give --fp8-recipe tensorwise",
        assignment);
}

// Assumptions describe another program, unless they say that its kernels are this engine's.
DeviceFigures figures_of(const Software& software, bool assumed) {
  return software.figures.value_or(assumed ? DeviceFigures::Fitted : DeviceFigures::Own);
}

}  // namespace

PlannedMachine planned_machine(const PlanConfig& config) {
  PlannedMachine machine;
  machine.costs_file = config.costs.value_or("");
  machine.peak_flops = config.peak_gflops * 1e9;
  machine.tensor_bytes_per_second = config.tensor_link_bandwidth * 1e9;
  machine.bytes_per_second = config.link_bandwidth * 1e9;
  machine.message_latency = config.link_latency * 1e-6;
  machine.offload_bytes_per_second = config.offload_bandwidth * 1e9;
  machine.expert_load = config.moe_load_imbalance;
  if (!config.hardware) return machine;
  for (const std::string& assumption : config.assume) set_value(machine.software, assumption);
  Hardware hardware = find_hardware(*config.hardware, figures_of(machine.software, !config.assume.empty()));
  for (const std::string& change : config.hardware_set) {
    check_rounding(config.run.precision, change);
    set_value(hardware, change);
  }
  machine.hardware = of_ranks(hardware, config.run.mesh);
  check_memory_keys(machine.software);
  check_described_memory(config, machine.software);
  return machine;
}

}  // namespace trifold
