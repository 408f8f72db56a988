#include "train/evaluation.h"

#include <algorithm>

#include "train/ranks.h"

namespace trifold {

LossSums forward_samples(Executor& executor, const Mesh& mesh, const DataSource& source, BatchBuffer& buffer,
                         int64_t end) {
  const int64_t block = buffer.batch().samples();
  LossSums sums;
  for (int64_t first = mesh.coord(Axis::Dp) * block; first < end; first += mesh.size(Axis::Dp) * block) {
    Batch batch = first_samples(buffer.batch(), std::min(block, end - first));
    source.read(batch, first);
    const LossSums part = executor.evaluate(batch);
    sums.loss += part.loss;
    sums.weight += part.weight;
  }
  return sums;
}

void sum_over_ranks(Replica& replica, std::span<LossSums> sums) {
  static_assert(sizeof(LossSums) == 2 * sizeof(double));
  Communicator& ranks = replica.mesh().comm({Axis::Dp, Axis::Pp});
  Stream host = replica.compute().host();
  ranks.all_reduce({sums.data(), DType::F64, {2 * static_cast<int64_t>(sums.size())}}, Reduce::Sum, host);
}

LossSums evaluate_model(Replica& replica, const DataSource& source, int64_t micro_batch_size,
                        int64_t samples) {
  Executor executor(replica.place(), replica.mesh(), replica.ops(), replica.weights(), nullptr,
                    replica.compute(), replica.side(), replica.dtype(),
                    Executor::measure_forward(replica.place(), replica.model().params, replica.mesh(),
                                              micro_batch_size, source.seq_length(), replica.dtype()));
  BatchBuffer buffer(micro_batch_size, source.seq_length());
  LossSums sums;
  abort_on_error(replica.world(), [&] {
    sums = forward_samples(executor, replica.mesh(), source, buffer, samples);
    sum_over_ranks(replica, {&sums, 1});
  });
  return sums;
}

}  // namespace trifold
