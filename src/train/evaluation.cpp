#include "train/evaluation.h"

#include <algorithm>

#include "train/ranks.h"

namespace trifold {

void count_labels(const DataSource& source, BatchBuffer& buffer, int64_t first, int64_t end,
                  LabelCount& count) {
  Batch& batch = buffer.batch();
  read_padded(source, batch, first, end);
  for (int64_t i = 0; i < batch.loss_weight.elements(); ++i) count.labels += batch.loss_weight.as<float>()[i];
  for (int64_t b = 0; b < batch.samples(); ++b) {
    count.pairs += batch.pair_weight.as<float>()[b];
    if (first + b < end) count.tokens += batch.lengths.as<int32_t>()[b];
  }
}

LabelCount count_all_labels(Replica& replica, const DataSource& source, BatchBuffer& buffer, int64_t end) {
  const Mesh& mesh = replica.mesh();
  const int64_t block = buffer.batch().samples();
  LabelCount count;
  for (int64_t first = mesh.coord(Axis::Dp) * block; first < end; first += mesh.size(Axis::Dp) * block)
    count_labels(source, buffer, first, end, count);
  sum_over_data_ranks(replica, {&count, 1});
  return count;
}

void sum_over_data_ranks(Replica& replica, std::span<LabelCount> counts) {
  static_assert(sizeof(LabelCount) == 3 * sizeof(double));
  Stream host = replica.compute().host();
  replica.mesh()
      .comm({Axis::Dp})
      .all_reduce({counts.data(), DType::F64, {3 * static_cast<int64_t>(counts.size())}}, Reduce::Sum, host);
}

LossSums forward_samples(Executor& executor, const Mesh& mesh, const DataSource& source, BatchBuffer& buffer,
                         int64_t end, double pair_scale, StepWatch* watch) {
  const int64_t block = buffer.batch().samples();
  LossSums sums;
  for (int64_t first = mesh.coord(Axis::Dp) * block; first < end; first += mesh.size(Axis::Dp) * block) {
    Batch batch = first_samples(buffer.batch(), std::min(block, end - first));
    source.read(batch, first);
    batch.pair_scale = pair_scale;
    const LossSums part = executor.evaluate(batch, watch);
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

LossSums evaluate_model(Replica& replica, const DataSource& source, int64_t micro_batch_size, int64_t samples,
                        bool has_pairs, StepWatch* watch) {
  Executor executor(replica.place(), replica.mesh(), replica.ops(), replica.weights(), nullptr,
                    replica.compute(), replica.side(), replica.dtype(),
                    Executor::measure_forward(replica.place(), replica.model().params, replica.mesh(),
                                              micro_batch_size, source.seq_length(), replica.dtype()));
  BatchBuffer buffer(micro_batch_size, source.seq_length());
  LossSums sums;
  abort_on_error(replica.world(), [&] {
    const double pair_scale =
        has_pairs ? count_all_labels(replica, source, buffer, samples).pair_scale() : 1.0;
    sums = forward_samples(executor, replica.mesh(), source, buffer, samples, pair_scale, watch);
    sum_over_ranks(replica, {&sums, 1});
  });
  return sums;
}

}  // namespace trifold
