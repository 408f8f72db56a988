#include "plan/forecast/hardware_forecast.h"

#include "core/error.h"
#include "models/gpt.h"
#include "models/stage_cut.h"
#include "plan/forecast/network.h"

namespace trifold {

HardwareForecast make_forecast(const RunSpec& run, const PlannedMachine& machine, const Model& model,
                               CostsOfModel* costs) {
  HardwareForecast forecast;
  forecast.hardware = machine.hardware.value();
  forecast.software = machine.software;
  const int tensor = run.mesh.tensor_model_parallel_size;
  forecast.work = make_workload(run, static_cast<double>(padded_vocab_size(run.model, tensor)));
  assume_context(forecast.software, forecast.work);
  const int stages = forecast.work.pipeline * forecast.work.chunks;
  const std::vector<double> balance = block_costs(model, sample_flops(run.model, tensor));
  const std::vector<StageRange> cut = cut_stages(run.mesh, model, balance, stages);
  forecast.work.stages = stage_counts(model, cut);
  CostsOfModel uncached(forecast.hardware, forecast.software, machine.expert_load);
  forecast.costs = (costs != nullptr ? *costs : uncached).of(run, run.order.splits_backward());
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
  once.step = once.update = update_seconds(hardware, work, weights);
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
