#include "plan/model_costs.h"

#include "mesh/mesh_sizes.h"
#include "models/model_walk.h"
#include "ops/counting.h"
#include "plan/planned_run.h"
#include "plan/report.h"

namespace trifold {

namespace {

RunSpec with_samples(RunSpec run, int64_t samples) {
  run.micro_batch_size = run.global_batch_size = samples;
  return run;
}

BlockSample sample_of(const WalkedBlock& work) {
  BlockSample sample;
  sample.forward = flops_of(work.evaluation);
  sample.step = flops_of(work.forward) + flops_of(work.input) + flops_of(work.weight);
  sample.kept = work.kept;
  return sample;
}

}  // namespace

ModelCosts model_costs(const RunSpec& run) {
  const PlannedRun planned(with_samples(run, 1));
  const Model& model = planned.cut().model;
  const int64_t length = run.model.seq_length;
  const WalkedModel work =
      walk_work(model, Mesh(planned.sizes(), {}), batch_without_memory(1, length, model.later_labels),
                run.layer_type(), counting_ops(FusedOps::All));
  ModelCosts costs;
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    BlockSample& sample = costs.blocks.emplace_back(sample_of(work.of_block(block)));
    if (block + 1 < model.blocks.size())
      sample.passed_on = model.blocks[block].output.shape(1, length, run.dtype).elements();
  }
  for (const ParamSpec& spec : model.params.specs())
    if (!spec.tied_to)
      costs.blocks[static_cast<size_t>(spec.block)].parameters += spec.shard.local.elements();
  costs.step = planned.cut().flops.all();
  costs.memory = planned_ranks(planned).front().memory;
  costs.further_sample =
      planned_ranks(PlannedRun(with_samples(run, 2))).front().memory.predicted_activations -
      costs.memory.predicted_activations;
  return costs;
}

}  // namespace trifold
