#include "nn/samples/sample_loss.h"

namespace trifold {

Tensor take_sample_sums(Run& run, Tensor losses, Arena& arena) {
  const Batch& batch = *run.batch;
  const Tensor weights = batch.loss_weight.flat();
  const Tensor sums = arena.take(DType::F64, {batch.samples()});
  run.ops.fill(run.stream, sums, 0.0);
  const int64_t length = batch.seq_length();
  for (int64_t i = 0; i < batch.samples(); ++i)
    run.ops.weighted_sum(run.stream, sums.rows(i, i + 1), losses.rows(i * length, (i + 1) * length),
                         weights.rows(i * length, (i + 1) * length));
  if (run.mesh.size(Axis::Cp) > 1)
    run.exchange([&](Stream& on) { run.mesh.comm({Axis::Cp}).all_reduce(sums, Reduce::Sum, on); });
  return sums;
}

}  // namespace trifold
