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

std::vector<LossSums> sum_over_ranks(Replica& replica, std::vector<LossSums> mine) {
  std::vector<double> values;
  for (const LossSums& sums : mine) values.insert(values.end(), {sums.loss, sums.weight});
  Communicator& ranks = replica.mesh().comm({Axis::Dp, Axis::Pp});
  ranks.all_reduce({values.data(), DType::F64, {static_cast<int64_t>(values.size())}}, Reduce::Sum,
                   replica.compute());
  replica.compute().synchronize();
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = {values[2 * i], values[2 * i + 1]};
  return mine;
}

LossSums sum_over_ranks(Replica& replica, LossSums mine) {
  return sum_over_ranks(replica, std::vector<LossSums>{mine}).front();
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
    sums = sum_over_ranks(replica, forward_samples(executor, replica.mesh(), source, buffer, samples));
  });
  return sums;
}

}  // namespace trifold
