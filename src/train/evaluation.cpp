#include "train/evaluation.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "comm/shared_error.h"
#include "models/bert.h"
#include "models/prediction_module.h"
#include "run/ranks.h"

namespace trifold {

BatchValues batch_values(const ReportList& reports, const LabelCount& count, double later_factor) {
  BatchValues values = kUnitValues;
  for (int k = 1; k <= kMostLaterLabels; ++k)
    if (const auto scale = reports.batch_values.find(PredictionReports::scale(k))) {
      const double later = count.later[static_cast<size_t>(k) - 1];
      values.at(static_cast<size_t>(scale->index)) = later > 0 ? later_factor * count.labels / later : 0;
    }
  if (const auto scale = reports.batch_values.find(PooledHead::kPairScale))
    values.at(static_cast<size_t>(scale->index)) = count.pairs > 0 ? count.labels / count.pairs : 0;
  return values;
}

void count_labels(const DataSource& source, BatchBuffer& buffer, int64_t first, int64_t end,
                  LabelCount& count) {
  Batch& batch = buffer.batch();
  read_padded(source, batch, first, end);
  for (int64_t i = 0; i < batch.loss_weight.elements(); ++i) count.labels += batch.loss_weight.as<float>()[i];
  for (size_t k = 0; k < count.later.size(); ++k)
    if (const Tensor& weights = batch.later_weights[k]; weights.data != nullptr)
      for (int64_t i = 0; i < weights.elements(); ++i) count.later[k] += weights.as<float>()[i];
  for (int64_t b = 0; b < batch.samples(); ++b) {
    count.pairs += batch.pair_weight.as<float>()[b];
    if (first + b < end) count.tokens += batch.lengths.as<int32_t>()[b];
  }
}

namespace {

// Calls body(first) for the block of this rank in each round. All ranks have equally many rounds; in the last one a
// block may begin at or after `end`.
void for_each_round(const Mesh& mesh, int64_t block, int64_t end, StopPoll& poll,
                    FunctionRef<void(int64_t)> body) {
  for (int64_t round = 0; round < end && !poll.stops(); round += mesh.size(Axis::Dp) * block)
    body(round + mesh.coord(Axis::Dp) * block);
}

}  // namespace

LabelCount count_all_labels(Replica& replica, const DataSource& source, BatchBuffer& buffer, int64_t end,
                            StopPoll& poll) {
  LabelCount count;
  for_each_round(replica.mesh(), buffer.batch().samples(), end, poll, [&](int64_t first) {
    if (first < end) count_labels(source, buffer, first, end, count);
  });
  if (!poll.stopped()) sum_over_data_ranks(replica, {&count, 1});
  return count;
}

// Context ranks have counted the same samples, so the sum over both axes is divided by their number.
void sum_over_data_ranks(Replica& replica, std::span<LabelCount> counts) {
  constexpr int64_t kCounts = sizeof(LabelCount) / sizeof(double);
  static_assert(std::is_trivially_copyable_v<LabelCount> && sizeof(LabelCount) == kCounts * sizeof(double));
  Stream host = replica.compute().host();
  replica.mesh().comm(kDataAxes).all_reduce(
      {counts.data(), DType::F64, {kCounts * static_cast<int64_t>(counts.size())}}, Reduce::Sum, host);
  const double times = replica.mesh().size(Axis::Cp);
  for (LabelCount& count : counts) {
    for (double* sum : {&count.labels, &count.pairs, &count.tokens}) *sum /= times;
    for (double& sum : count.later) sum /= times;
  }
}

namespace {

// The batch to read, of at most `left` samples if it has arrays: those belong to all samples of a batch together, so the
// last batch is smaller. Text is filled up instead.
Batch batch_of(BatchBuffer& buffer, const DataSource& source, int64_t left) {
  Batch batch = buffer.batch();
  if (batch.arrays.data == nullptr || left >= batch.samples() || left <= 0) return batch;
  const Tensor arrays = std::exchange(batch.arrays, {});
  batch = first_samples(batch, left);
  batch.arrays = arrays.flat(0, source.array_bytes(left));
  return batch;
}

}  // namespace

LossSums forward_samples(Executor& executor, const Mesh& mesh, bool together, RowCut cut,
                         const DataSource& source, BatchBuffer& buffer, int64_t end, StopPoll& poll,
                         const BatchValues& values, StepWatch* watch, ClassCounts* classes) {
  const int64_t block = buffer.batch().samples();
  LossSums sums;
  for_each_round(mesh, block, end, poll, [&](int64_t first) {
    if (first >= end && !together) return;
    // Arrays cannot be filled up: a rank without samples computes the first ones again, which do not count.
    const bool again = first >= end && buffer.batch().arrays.data != nullptr;
    const int64_t from = again ? 0 : first;
    Batch batch = batch_of(buffer, source, end - from);
    read_padded(source, batch, from, end);
    cut_rows(batch, rows_here(cut, source.seq_length(), mesh.sizes(), mesh.coords()));
    batch.values = values;
    const LossSums part = executor.evaluate(batch, again ? nullptr : watch);
    if (again) return;
    sums.loss += part.loss;
    sums.weight += part.weight;
    for (size_t i = 0; i < sums.terms.size(); ++i) sums.terms[i] += part.terms[i];
    if (classes != nullptr) classes->add(executor.counters());
  });
  return sums;
}

void sum_over_ranks(Replica& replica, std::span<LossSums> sums) {
  Communicator& ranks = replica.mesh().comm(kDataAxes | AxisSet{Axis::Pp});
  Stream host = replica.compute().host();
  ranks.all_reduce({sums.data(), DType::F64, {kLossNumbers * static_cast<int64_t>(sums.size())}}, Reduce::Sum,
                   host);
}

std::optional<LossSums> loss_sums(Replica& replica, Executor& executor, const DataSource& source,
                                  BatchBuffer& buffer, int64_t samples, bool has_pairs, StopPoll& poll,
                                  StepWatch* watch, ClassCounts* classes) {
  BatchValues values = kUnitValues;
  if (classes != nullptr) classes->write(values);
  if (has_pairs)
    values = batch_values(replica.model().reports, count_all_labels(replica, source, buffer, samples, poll));
  // Ranks that share experts exchange rows, and ranks that share weights gather them.
  const bool together = replica.mesh().sizes().ranks(kExpertShareAxes) > 1 || replica.weights().sharded();
  LossSums sums = forward_samples(executor, replica.mesh(), together, replica.model().row_cut, source, buffer,
                                  samples, poll, values, watch, classes);
  if (poll.stopped()) return std::nullopt;
  sum_over_ranks(replica, {&sums, 1});
  return sums;
}

void find_means(const ReportList& reports, const LossSums& sums, MeanTerms& means) {
  means.resize(reports.shown_terms.size());
  for (size_t i = 0; i < means.size(); ++i) {
    if (means[i].first.empty()) means[i].first = reports.shown_terms[i];
    means[i].second = sums.term(*reports.loss_terms.find(reports.shown_terms[i])) / sums.weight;
  }
}

void expect_counted(const LossSums& sums, const Communicator& world, const std::string& what) {
  if (sums.weight > 0) return;
  throw SharedError(
      fmt::format(
          "{}: every token is masked out of the loss, so there is no loss to report; evaluate other data, or "
          "leave out --eod-mask-loss if it was given",
          what),
      ErrorKind::BadInput, world.size(), world.rank() == 0);
}

std::optional<LossSums> evaluate_model(Replica& replica, const DataSource& source, int64_t micro_batch_size,
                                       int64_t samples, bool has_pairs, StepWatch* watch,
                                       const std::atomic<int>* signal, ClassCounts* classes) {
  const Mesh& mesh = replica.mesh();
  Batch shapes = batch_without_memory(micro_batch_size, source.seq_length());
  cut_rows(shapes, rows_here(replica.model().row_cut, source.seq_length(), mesh.sizes(), mesh.coords()));
  if (classes != nullptr && !classes->any()) classes = nullptr;
  const ReportList* const reports = classes != nullptr ? &replica.model().reports : nullptr;
  Executor executor(replica.pipeline(), mesh, replica.ops(), replica.weights(), nullptr, replica.compute(),
                    replica.side(), replica.dtype(),
                    Executor::measure_forward(replica.pipeline(), replica.model().params, mesh, shapes,
                                              replica.dtype(), reports));
  if (reports != nullptr) executor.collect(*reports);
  BatchBuffer buffer(source, micro_batch_size);
  std::optional<LossSums> sums;
  abort_on_error(replica.world(), [&] {
    StopPoll poll(replica.world(), replica.compute(), signal);
    sums = loss_sums(replica, executor, source, buffer, samples, has_pairs, poll, watch, classes);
  });
  return sums;
}

}  // namespace trifold
