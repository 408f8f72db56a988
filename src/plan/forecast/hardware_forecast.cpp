#include "plan/forecast/hardware_forecast.h"

#include "core/error.h"
#include "models/gpt.h"
#include "models/stage_cut.h"
#include "plan/forecast/network.h"

namespace trifold {

namespace {

// What Trifold alone can do. A search has limits of its own, and plans no other layouts where one does not fit.
void check_described_memory(const PlanConfig& config, const Software& software) {
  if (!software.describes_memory()) return;
  const MeshConfig& mesh = config.run.mesh;
  if (config.run.model.num_experts || config.run.model.multi_latent_attention)
    bad_input(
        "--assume activations describes dense layers: leave it out for a model with experts or latent attention");
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

}  // namespace

PlannedMachine planned_machine(const PlanConfig& config) {
  PlannedMachine machine;
  machine.hardware = find_hardware(config.hardware.value());
  for (const std::string& change : config.hardware_set) set_value(machine.hardware, change);
  machine.hardware = of_ranks(machine.hardware, config.run.mesh);
  for (const std::string& assumption : config.assume) set_value(machine.software, assumption);
  check_memory_keys(machine.software);
  check_described_memory(config, machine.software);
  return machine;
}

HardwareForecast make_forecast(const PlanConfig& config, const Model& model) {
  const PlannedMachine machine = planned_machine(config);
  HardwareForecast forecast;
  forecast.hardware = machine.hardware;
  forecast.software = machine.software;
  const int tensor = config.run.mesh.tensor_model_parallel_size;
  forecast.work = make_workload(config.run, static_cast<double>(padded_vocab_size(config.run.model, tensor)));
  assume_context(forecast.software, forecast.work);
  const int stages = forecast.work.pipeline * forecast.work.chunks;
  const std::vector<double> balance = block_costs(model, sample_flops(config.run.model, tensor));
  const std::vector<StageRange> cut = cut_stages(config.run.mesh, model, balance, stages);
  forecast.work.stage_layers = layers_of(model, cut);
  forecast.work.stage_plain = plain_layers_of(model, cut);
  for (const int heads : heads_of(model, cut))
    forecast.work.stage_head.push_back(static_cast<double>(heads) / config.run.mesh.pipeline_vocab_parts);
  forecast.costs = CostsOfModel(forecast.hardware, forecast.software, config.moe_load_imbalance)
                       .of(config.run, splits_backward(config.run.pipeline));
  forecast.closed_form = step_time(forecast.hardware, forecast.software, forecast.work, forecast.costs);
  return forecast;
}

OnceSeconds once_seconds(const HardwareForecast& forecast, const HeldWeights& weights, bool each) {
  const auto& [hardware, software, work, costs, closed_form] = forecast;
  const double gradient = software.gradient_bytes > 0 ? software.gradient_bytes : work.gradient_bytes;
  const double scatter = scatter_seconds(hardware, software, work, weights, gradient);
  const double gather =
      gather_seconds(hardware, software, work, weights, work.zero_stage > 0 ? work.element_bytes : gradient);
  OnceSeconds once;
  once.step = update_seconds(hardware, work, weights);
  if (work.zero_stage == 3 && work.pipeline == 1) return once;  // layer by layer, overlapped with computation
  once.reduce = each ? scatter : scatter + gather;
  if (each && work.zero_stage < 3) once.step += gather;
  if (software.overlap_gradients || each) return once;
  once.step += once.reduce;
  once.reduce = 0;
  return once;
}

double tied_sum_seconds(const HardwareForecast& forecast, double bytes) {
  return message_seconds(forecast.hardware, forecast.work, bytes);
}

}  // namespace trifold
