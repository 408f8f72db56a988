#include "layout/run_spec.h"

#include <algorithm>

#include "config/fields/pipeline_choice.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "schedule/automatic.h"

namespace trifold {

namespace {

OrderSpec order_spec(const PretrainConfig& config) {
  const PipelineConfig& pipeline = config.pipeline;
  const int ranks = config.mesh.pipeline_model_parallel_size;
  OrderSpec order;
  order.schedule = chosen_schedule(pipeline);
  if (!order.schedule) order.file = pipeline.schedule->file;
  order.costs_file = pipeline.schedule_costs.value_or("");
  order.stages_per_rank = stages_per_rank(pipeline, config.model.num_layers, ranks).value_or(1);
  order.max_in_flight = pipeline.schedule_max_in_flight.value_or(default_max_in_flight(ranks));
  order.window = pipeline.async_window.value_or(1);
  return order;
}

}  // namespace

RunSpec run_spec(const PretrainConfig& config) {
  const int64_t smallest_batch = config.batch.micro_batch_size * config.mesh.data_parallel_size.value_or(1);
  RunSpec run;
  run.model = config.model;
  run.mesh = config.mesh;
  run.zero = config.zero;
  run.optimizer = config.optimizer;
  run.order = order_spec(config);
  run.dtype = compute_type(config.precision);
  run.sum_dtype = reduce_type(config.precision);
  run.products_in_8bit = config.precision.fp8;
  run.narrow_factors = has_narrow_factors(config.precision);
  run.masks_documents = config.data.reset_attention_mask;
  run.micro_batch_size = config.batch.micro_batch_size;
  run.global_batch_size = config.batch.global_batch_size.value_or(smallest_batch);
  run.batch_sizes = BatchSizes(ramp_of(config.batch), run.global_batch_size);
  run.train_iters = config.batch.train_iters;
  run.seed = config.seed;
  return run;
}

bool OrderSpec::splits_backward() const {
  switch (schedule.value_or(Schedule::OneFOneB)) {
    case Schedule::ZbH1:
    case Schedule::ZbH2:
    case Schedule::ZbV:
    case Schedule::DualPipeV:
    case Schedule::Auto:
      return true;
    default:
      return false;
  }
}

int RunSpec::most_micros() const { return std::max(micros(), with_batch(batch_sizes.full()).micros()); }

RunSpec RunSpec::with_batch(int64_t size) const {
  RunSpec run = *this;
  run.global_batch_size = size;
  return run;
}

int RunSpec::micros() const {
  return static_cast<int>(global_batch_size / mesh.data_parallel_size.value_or(1) / micro_batch_size);
}

bool RunSpec::can_reduce_each() const {
  // A node with several ranks has at least 2, so the nodes need not be known here.
  return zero_sharing(zero, mesh_sizes(mesh), {}).stage.gradients && !order.is_async();
}

bool RunSpec::reduces_each() const {
  if (!can_reduce_each()) return false;
  if (zero.zero_reduce) return *zero.zero_reduce == ReducePolicy::Each;
  return most_micros() == 1;
}

}  // namespace trifold
